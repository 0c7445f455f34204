//! Delayed ACKs. A kernel's answer implies that the request arrived, and the next request implies that the
//! answer arrived; the same is true for a client and its chain. Such a packet requests no acknowledgement,
//! unless many packets before it did not either. A timer finally sends the ACK, so no requester times out,
//! and work requests that wait for earlier ones can continue.

use remora_memory::Mem;
use remora_transport::rc::Plan;
use remora_transport::{Action, Instant, Outcome};

use super::checked::{checker, execute_checked};
use super::placement::{execute_tapped, is_tapped};
use crate::context::WqeContext;
use crate::machine::Connection;
use crate::queue_pair::QueuePair;
use crate::ring::Word;
use crate::shared::Shared;
use crate::wqe::WqeOpcode;

/// Delay of a delayed ACK in nanoseconds.
pub const DELAYED_ACK_NS: u64 = 1_000_000;
/// A requester with a timeout shorter than this, in nanoseconds, always requests an ACK, so that a delayed
/// ACK causes no retries.
const SHORTEST_TIMEOUT_NS: u64 = 5 * DELAYED_ACK_NS;

impl WqeContext {
    /// Returns true if only the send queue needs the message's acknowledgement.
    fn may_delay_ack(&self) -> bool {
        let opcode = WqeOpcode(self.header as u8);
        let tells = matches!(opcode, WqeOpcode::SEND | WqeOpcode::WRITE_IMM | WqeOpcode::ANSWER);
        !self.signaled() && (tells || opcode.is_strom())
    }
}

/// Clears the acknowledgement request of a packet that needs none.
#[inline]
pub(crate) fn maybe_delay_ack(qp: &QueuePair, plan: &mut Plan) {
    let agreed = qp.offloads().strom.as_ref().is_some_and(|strom| strom.agreed);
    let patient = agreed && qp.parameters().timeout_ns >= SHORTEST_TIMEOUT_NS;
    let Some(Connection { requester, .. }) = qp.machine().rc().filter(|_| patient) else { return };
    let ring = qp.queues().send.ring();
    // An acknowledgement frees slots, so it is not delayed while more than half of the slots are in use.
    let free = |context: &WqeContext| context.end.wrapping_sub(ring.word(Word::Consumed)) <= ring.slots() / 2;
    let has_slots = |context: &WqeContext| qp.queues().send.is_recycled() || free(context);
    let may = requester.context(plan).is_some_and(|context| context.may_delay_ack() && has_slots(context));
    if may && requester.may_delay_ack(plan) {
        plan.ack_req = false;
    }
}

/// Clears the acknowledgement request of a packet of a queue pair without offloads, if only the send queue
/// needs the acknowledgement. The peer sends none then, until the requester asks for it.
#[inline(always)]
pub(crate) fn delay_plain_ack(qp: &QueuePair, plan: &mut Plan) {
    let Some(Connection { requester, .. }) = qp.machine().rc() else { return };
    if requester.context(plan).is_some_and(|context| context.needs_no_ack(qp.queues().send.ring()))
        && qp.parameters().timeout_ns >= SHORTEST_TIMEOUT_NS
    {
        requester.delay_ack(plan);
    }
}

/// Executes a request of a queue pair with kernels, which may observe its WRITEs or check its READs.
#[inline(never)]
pub(crate) fn execute_strom(
    qp: &mut QueuePair,
    now: Instant,
    mem: Mem<'_>,
    action: Action,
    payload: &[u8],
    shared: &mut Shared,
) {
    let outcome = match (is_tapped(qp), action) {
        (_, Action::Fetch { len, .. }) if checker(qp).is_some() => {
            execute_checked(qp, mem, action, len, shared)
        }
        (true, _) => execute_tapped(qp, mem, action, payload, shared),
        (false, _) => qp.execute(mem, action, payload, shared),
    };
    conclude_delaying_ack(qp, now, outcome, shared);
}

/// Starts the timer of the delayed ACK if the executed packet requested no ACK.
pub(super) fn conclude_delaying_ack(qp: &mut QueuePair, now: Instant, outcome: Outcome, shared: &mut Shared) {
    let Some(Connection { responder, .. }) = qp.machine_mut().rc_mut() else { return };
    responder.conclude(outcome, shared.counters_mut());
    if responder.has_reply() {
        return;
    }
    if let Some(strom) = qp.offloads_mut().strom.as_mut().filter(|strom| strom.delayed_ack == Instant::NEVER)
    {
        strom.delayed_ack = now.after(DELAYED_ACK_NS);
    }
}

/// Stops the timer of the delayed ACK, because all responses were sent.
pub(crate) fn clear_delayed_ack(qp: &mut QueuePair) {
    if let Some(strom) = &mut qp.offloads_mut().strom {
        strom.delayed_ack = Instant::NEVER;
    }
}
