//! Delayed ACKs. A kernel's answer tells the requester that its request arrived, and the next request tells
//! the kernel the same of its answer; a client and its chain do likewise. Such a packet asks for no
//! acknowledgement, unless many before it did not. The ACK leaves by a timer in the end: so no requester
//! times out, and work that waits for all earlier work goes on.

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

/// Nanoseconds that a delayed ACK waits.
pub const DELAYED_ACK_NS: u64 = 1_000_000;
/// A requester with a shorter timeout always asks for an ACK: a delayed ACK must not cause retries.
const SHORTEST_TIMEOUT_NS: u64 = 5 * DELAYED_ACK_NS;

impl WqeContext {
    /// Is the acknowledgement of its message of use only to the send queue?
    fn may_delay_ack(&self) -> bool {
        let opcode = WqeOpcode(self.header as u8);
        let tells = matches!(opcode, WqeOpcode::SEND | WqeOpcode::WRITE_IMM | WqeOpcode::ANSWER);
        !self.signaled() && (tells || opcode.is_strom())
    }
}

/// Takes the request for an acknowledgement off a packet that can do without.
#[inline]
pub(crate) fn maybe_delay_ack(qp: &QueuePair, plan: &mut Plan) {
    let agreed = qp.strom.as_ref().is_some_and(|strom| strom.agreed);
    let patient = agreed && qp.attributes.parameters.timeout_ns >= SHORTEST_TIMEOUT_NS;
    let Some(Connection { requester, .. }) = qp.machine.rc().filter(|_| patient) else { return };
    let ring = qp.send.ring();
    // An acknowledgement frees slots: it is not delayed when more than half of them are in use.
    let free = |context: &WqeContext| context.end.wrapping_sub(ring.word(Word::Consumed)) <= ring.slots() / 2;
    let has_slots = |context: &WqeContext| qp.send.is_recycled() || free(context);
    let may = requester.context(plan).is_some_and(|context| context.may_delay_ack() && has_slots(context));
    if may && requester.may_delay_ack(plan) {
        plan.ack_req = false;
    }
}

/// Executes a request of a queue pair that has kernels: they may see its WRITEs or check its READs.
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

/// A packet has been executed. If it asked for no ACK, the timer of the delayed ACK starts.
pub(super) fn conclude_delaying_ack(qp: &mut QueuePair, now: Instant, outcome: Outcome, shared: &mut Shared) {
    let Some(Connection { responder, .. }) = qp.machine.rc_mut() else { return };
    responder.conclude(outcome, &mut shared.counters);
    if responder.has_reply() {
        return;
    }
    if let Some(strom) = qp.strom.as_mut().filter(|strom| strom.delayed_ack == Instant::NEVER) {
        strom.delayed_ack = now.after(DELAYED_ACK_NS);
    }
}

/// All responses have left: no delayed ACK is due.
pub(crate) fn clear_delayed_ack(qp: &mut QueuePair) {
    if let Some(strom) = &mut qp.strom {
        strom.delayed_ack = Instant::NEVER;
    }
}
