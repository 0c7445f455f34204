//! READs whose bytes a kernel checks before they leave (StRoM paper, §3.5: a send kernel).

use remora_memory::{Access, Key, Mem, Owner, Pd};
use remora_transport::rc::ReplyKind;
use remora_transport::{Action, Instant, Outcome};
use remora_wire::NakCode;

use super::base::KernelId;
use super::table::Kernels;
use super::{AGAIN_NS, BEHIND, Check, READINGS, UNFIT_NS, Verdict};
use crate::queue_pair::QueuePair;
use crate::shared::Shared;

/// The result of checking the bytes of a READ response.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum CheckResult {
    /// No kernel checks them.
    NotChecked,
    /// They leave, from the [buffer](Kernels::checked_bytes) where they were checked. The check comes before
    /// a frame is lent: bytes stored to a frame that then waits would take its cache lines from a peer that
    /// polls.
    Passed,
    /// The check failed; they are read again later.
    Failed,
    /// They do not leave.
    Refused,
}

/// Since when the bytes of a READ fail their check, and when they are read again.
#[derive(Copy, Clone, Debug)]
pub(super) struct Recheck {
    since: Instant,
    again: Option<Instant>,
}

impl Recheck {
    /// When the bytes are read again.
    pub fn deadline(&self) -> Instant {
        self.again.unwrap_or(Instant::NEVER)
    }

    /// Runs the timer.
    pub fn expire(&mut self, now: Instant) {
        self.again = self.again.filter(|again| *again > now);
    }
}

impl Kernels {
    /// The check of a kernel, the buffer for it, and the kernel's count of steps. None: the kernel is gone,
    /// or does not check.
    pub(super) fn checker_of(&mut self, id: KernelId) -> Option<(&mut dyn Check, &mut [u8], &mut u64)> {
        let kernel = self.deployed.get_mut(id.place as usize)?.as_mut()?;
        let there = kernel.base.id == id && !kernel.base.leaving;
        let lane = kernel.lanes.first_mut().filter(|_| there)?;
        Some((lane.checks()?, &mut self.check_buffer, &mut kernel.base.steps))
    }

    /// Checks the bytes that a READ asked for.
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

    /// The bytes that passed the last check.
    #[inline]
    pub(crate) fn checked_bytes(&self) -> &[u8] {
        &self.check_buffer
    }
}

/// The kernel that checks what the peer READs.
#[inline(always)]
pub(crate) fn checker(qp: &QueuePair) -> Option<KernelId> {
    qp.strom.as_ref()?.checker
}

/// Do the bytes of a READ wait until they are read again?
#[inline(always)]
pub(crate) fn waits_for_bytes(qp: &QueuePair, now: Instant) -> bool {
    let recheck = qp.strom.as_ref().and_then(|strom| strom.recheck);
    recheck.and_then(|recheck| recheck.again).is_some_and(|again| again > now)
}

/// Checks the bytes of the response that is about to leave, if a kernel does that. Bytes that fail are
/// read again later.
#[inline]
pub(crate) fn check_reply(
    qp: &mut QueuePair,
    now: Instant,
    mem: Mem<'_>,
    reply: &ReplyKind,
    shared: &mut Shared,
) -> CheckResult {
    let ReplyKind::Memory { key, va, len: len @ 1.. } = *reply else { return CheckResult::NotChecked };
    let (pd, owner) = (qp.pd, qp.owner);
    let Some(strom) = &mut qp.strom else { return CheckResult::NotChecked };
    let Some(checker) = strom.checker else { return CheckResult::NotChecked };
    let checked = shared.kernels.check_bytes(checker, mem, pd, owner, key, va, len);
    let since = strom.recheck.map_or(now, |recheck| recheck.since);
    let waits = checked == CheckResult::Failed && now < since.after(UNFIT_NS);
    strom.recheck = waits.then(|| Recheck { since, again: Some(now.after(AGAIN_NS)) });
    if checked == CheckResult::Failed && !waits { CheckResult::Refused } else { checked }
}

/// Takes a READ that a kernel checks. It must be one packet: of a longer one the first bytes would have
/// left before the last are checked.
#[inline(never)]
pub(crate) fn execute_checked(
    qp: &mut QueuePair,
    mem: Mem<'_>,
    action: Action,
    len: u32,
    shared: &mut Shared,
) -> Outcome {
    if len > qp.attributes.parameters.mtu {
        return Outcome::Nak(NakCode::INVALID_REQUEST);
    }
    qp.execute_outlined(mem, action, &[], shared)
}
