//! READs whose data a kernel checks before the response is sent (StRoM paper, §3.5: a send kernel).

use remora_memory::Mem;
use remora_transport::rc::ReplyKind;
use remora_transport::{Action, Instant, Outcome};
use remora_wire::NakCode;

use super::base::KernelId;
use super::recheck::Recheck;
use super::{AGAIN_NS, CheckResult, UNFIT_NS};
use crate::queue_pair::QueuePair;
use crate::shared::Shared;

/// Returns the kernel that checks the peer's READs.
#[inline(always)]
pub(crate) fn checker(qp: &QueuePair) -> Option<KernelId> {
    qp.offloads().strom.as_ref()?.checker
}

/// Returns true while a READ waits for its next reading.
#[inline(always)]
pub(crate) fn waits_for_bytes(qp: &QueuePair, now: Instant) -> bool {
    let recheck = qp.offloads().strom.as_ref().and_then(|strom| strom.recheck);
    recheck.and_then(|recheck| recheck.again).is_some_and(|again| again > now)
}

/// Checks the data of the next response if a kernel checks READs. Data that fails is read again later.
#[inline]
pub(crate) fn check_reply(
    qp: &mut QueuePair,
    now: Instant,
    mem: Mem<'_>,
    reply: &ReplyKind,
    shared: &mut Shared,
) -> CheckResult {
    let ReplyKind::Memory { key, va, len: len @ 1.. } = *reply else { return CheckResult::NotChecked };
    let pd = qp.id().pd;
    let owner = qp.id().owner;
    let Some(strom) = &mut qp.offloads_mut().strom else { return CheckResult::NotChecked };
    let Some(checker) = strom.checker else { return CheckResult::NotChecked };
    let checked = shared.kernels_mut().check_bytes(checker, mem, pd, owner, key, va, len);
    let since = strom.recheck.map_or(now, |recheck| recheck.since);
    let waits = checked == CheckResult::Failed && now < since.after(UNFIT_NS);
    strom.recheck = waits.then(|| Recheck { since, again: Some(now.after(AGAIN_NS)) });
    if checked == CheckResult::Failed && !waits { CheckResult::Refused } else { checked }
}

/// Accepts a READ that a kernel checks. The response must be one packet; of a longer one, the first packets
/// would be sent before the last are checked.
#[inline(never)]
pub(crate) fn execute_checked(
    qp: &mut QueuePair,
    mem: Mem<'_>,
    action: Action,
    len: u32,
    shared: &mut Shared,
) -> Outcome {
    if len > qp.parameters().mtu {
        return Outcome::Nak(NakCode::INVALID_REQUEST);
    }
    qp.execute_outlined(mem, action, &[], shared)
}
