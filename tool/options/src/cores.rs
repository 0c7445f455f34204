//! Which core a process runs on.

use anyhow::{Context, Result, bail, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

fn none(core: usize) -> String {
    format!("core {core} is not to be had: choose one that `taskset -cp $$` lists")
}

/// The CPU affinity of this thread. Dropping this value restores it.
pub struct SavedAffinity(CpuSet);

impl SavedAffinity {
    /// Saves the present affinity.
    pub fn now() -> Result<SavedAffinity> {
        sched_getaffinity(None).map(SavedAffinity).context("asking which cores may be used")
    }
}

impl Drop for SavedAffinity {
    fn drop(&mut self) {
        // The system refuses only if none of these cores is left. The thread keeps its present ones then.
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// Keeps this thread on one core.
pub fn pin(core: usize) -> Result<()> {
    ensure!(core < CpuSet::MAX_CPU, none(core));
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).with_context(|| none(core))
}

/// The cores of two processes: as asked for, or else the first two that this process may use; where there is
/// only one, both have that. To be asked before [`pin`].
pub fn two_cores(asked: &[usize]) -> Result<[usize; 2]> {
    let allowed = sched_getaffinity(None).context("asking which cores may be used")?;
    let is_allowed = |core: &usize| *core < CpuSet::MAX_CPU && allowed.is_set(*core);
    match *asked {
        [own, other] => match [own, other].iter().find(|core| !is_allowed(core)) {
            Some(core) => bail!(none(*core)),
            None => Ok([own, other]),
        },
        [] => {
            let mut cores = (0..CpuSet::MAX_CPU).filter(is_allowed);
            let first = cores.next().context("this process may use no core")?;
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
        // Where only one may be used, two processes share it.
        let before = SavedAffinity::now().unwrap();
        pin(other).unwrap();
        assert_eq!(two_cores(&[]).unwrap(), [other, other]);
        drop(before);
        assert_eq!(two_cores(&[]).unwrap(), [own, other]);
        for none in [other + 1, 1 << 40] {
            let refused = two_cores(&[other, none]).unwrap_err().to_string();
            assert!(refused.contains(&format!("core {none} is not to be had")), "{refused}");
        }
        assert!(two_cores(&[1]).unwrap_err().to_string().contains("--cores takes two cores"));
    }
}
