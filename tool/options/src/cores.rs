//! Pins processes to CPU cores.

use anyhow::{Context, Result, bail, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

fn none(core: usize) -> String {
    format!("cannot run on core {core}: choose a core that `taskset -cp $$` lists")
}

/// The CPU affinity of the calling thread. Dropping the value restores that affinity.
pub struct SavedAffinity(CpuSet);

impl SavedAffinity {
    /// Saves the current affinity of the calling thread. //
    pub fn now() -> Result<SavedAffinity> {
        sched_getaffinity(None).map(SavedAffinity).context("reading the CPU affinity of this process")
    }
}

impl Drop for SavedAffinity {
    fn drop(&mut self) {
        // sched_setaffinity fails only if none of the saved cores is online any more. The thread then keeps
        // the affinity that it has.
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// Pins the calling thread to one core.
///
/// # Errors
/// Fails if the thread may not run on the core.
pub fn pin(core: usize) -> Result<()> {
    ensure!(core < CpuSet::MAX_CPU, none(core));
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).with_context(|| none(core))
}

/// Chooses the cores of two processes: the ones in `asked`, or by default the first two that the calling
/// thread may use. If the thread may use one core only, both processes share it. Call this function before
/// [`pin`], which leaves the thread a single core.
///
/// # Errors
/// Fails unless `asked` has no or two elements, and if the thread may not use one of them.
pub fn two_cores(asked: &[usize]) -> Result<[usize; 2]> {
    let allowed = sched_getaffinity(None).context("reading the CPU affinity of this process")?;
    let is_allowed = |core: &usize| *core < CpuSet::MAX_CPU && allowed.is_set(*core);
    match *asked {
        [own, other] => match [own, other].iter().find(|core| !is_allowed(core)) {
            Some(core) => bail!(none(*core)),
            None => Ok([own, other]),
        },
        [] => {
            let mut cores = (0..CpuSet::MAX_CPU).filter(is_allowed);
            let first = cores.next().context("this process has no usable CPU core")?;
            Ok([first, cores.next().unwrap_or(first)])
        }
        _ => bail!("--cores takes two cores, for instance 0,1"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the second benchmark of a process measured two processes on one core, because the
    /// first one had pinned the thread.
    #[test]
    fn only_cores_that_may_be_used_are_chosen() {
        let allowed = sched_getaffinity(None).unwrap();
        let [own, other] = two_cores(&[]).unwrap();
        assert!(allowed.is_set(own) && allowed.is_set(other));
        assert_eq!(own == other, allowed.count() == 1);
        assert_eq!(two_cores(&[other, own]).unwrap(), [other, own]);
        // With a single usable core, both processes share it.
        let before = SavedAffinity::now().unwrap();
        pin(other).unwrap();
        assert_eq!(two_cores(&[]).unwrap(), [other, other]);
        drop(before);
        assert_eq!(two_cores(&[]).unwrap(), [own, other]);
        for none in [other + 1, 1 << 40] {
            let refused = two_cores(&[other, none]).unwrap_err().to_string();
            assert!(refused.contains(&format!("cannot run on core {none}")), "{refused}");
        }
        assert!(two_cores(&[1]).unwrap_err().to_string().contains("--cores takes two cores"));
    }
}
