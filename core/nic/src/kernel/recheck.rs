//! The check of READ data by a kernel, and the state of a READ whose data failed the check.

use remora_memory::{Access, Key, Mem, Owner, Pd};
use remora_transport::Instant;

use super::base::KernelId;
use super::interface::{BEHIND, Check, READINGS, Verdict};
use super::table::Kernels;

/// The result of checking the bytes of a READ response.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum CheckResult {
    /// No kernel checks the data.
    NotChecked,
    /// The check passed; the response is sent from the [buffer](Kernels::checked_bytes) that was checked. The
    /// check runs before a frame is taken from the port: storing data into a frame that is then held back
    /// would take its cache lines from a polling peer.
    Passed,
    /// The check failed; the data is read again later.
    Failed,
    /// The check refused the data; the READ ends with an error.
    Refused,
}

/// A READ whose data fails the check: the time of the first failure, and the time of the next reading.
#[derive(Copy, Clone, Debug)]
pub(super) struct Recheck {
    pub since: Instant,
    pub again: Option<Instant>,
}

impl Recheck {
    /// Returns the time of the next reading.
    pub(crate) fn deadline(&self) -> Instant {
        self.again.unwrap_or(Instant::NEVER)
    }

    /// Runs the timer.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.again = self.again.filter(|again| *again > now);
    }
}

impl Kernels {
    /// Returns the check of a kernel, the buffer for the data, and the kernel's step counter. `None` if the
    /// kernel is gone or checks no READs.
    pub(super) fn checker_of(&mut self, id: KernelId) -> Option<(&mut dyn Check, &mut [u8], &mut u64)> {
        let kernel = self.deployed.get_mut(id.place as usize)?.as_mut()?;
        let there = kernel.base.id == id && !kernel.base.leaving;
        let lane = kernel.lanes.first_mut().filter(|_| there)?;
        Some((lane.checks()?, &mut self.check_buffer, &mut kernel.base.steps))
    }

    /// Checks the data of a READ.
    #[inline]
    pub(crate) fn check_bytes(
        &mut self,
        checker: KernelId,
        mem: Mem<'_>,
        pd: Pd,
        owner: Owner,
        key: u32,
        va: u64,
        len: u32,
    ) -> CheckResult {
        let Some((check, buffer, steps)) = self.checker_of(checker) else { return CheckResult::Refused };
        *steps += 1;
        let len = len as usize;
        let wanted = len + check.behind().min(BEHIND);
        let Some(buffer) = buffer.get_mut(..wanted) else { return CheckResult::Refused };
        let span = mem.check_for(pd, owner, Key::new(key), va, buffer.len(), Access::REMOTE_READ);
        let Ok(span) = span else { return CheckResult::Refused };
        for before in 0..READINGS {
            if span.read(buffer) < buffer.len() {
                return CheckResult::Refused;
            }
            let (bytes, behind) = buffer.split_at(len);
            match check.check(bytes, behind, before) {
                Verdict::Leave => return CheckResult::Passed,
                Verdict::Again => {}
                Verdict::Refuse => return CheckResult::Refused,
            }
        }
        CheckResult::Failed
    }

    /// Returns the data that passed the last check.
    #[inline]
    pub(crate) fn checked_bytes(&self) -> &[u8] {
        &self.check_buffer
    }
}
