//! Acknowledgements that nobody waits for. A request to a kernel without a completion of its own is answered by its kernel, and an
//! answer by the next request; so are a client's message to a chain, and the chain's answer. Such a packet asks for no acknowledgement,
//! unless many before it did not. One that was not asked for leaves at last by a timer, so that nobody's timeout comes, and what waits
//! for the end of all work goes on.

use remora_memory::Mem;
use remora_transport::rc::Plan;
use remora_transport::{Action, Instant, Outcome};

use super::Strom;
use crate::nic::Shared;
use crate::queue_pair::{Connection, QueuePair, WqeContext};
use crate::ring::Word;
use crate::wqe::WqeOpcode;

/// Nanoseconds that an acknowledgement waits which was not asked for.
pub const DELAYED_ACK_NS: u64 = 1_000_000;
/// A requester whose patience with the network is shorter always asks: retries must not come from this.
const SHORTEST_TIMEOUT_NS: u64 = 5 * DELAYED_ACK_NS;

impl WqeContext {
    /// Is an acknowledgement of its message of no use to anybody but the send queue?
    fn may_delay_ack(&self) -> bool {
        let opcode = WqeOpcode(self.header as u8);
        let tells = matches!(opcode, WqeOpcode::SEND | WqeOpcode::WRITE_IMM | WqeOpcode::ANSWER);
        !self.signaled() && (tells || opcode.is_strom())
    }
}

impl QueuePair {
    /// A packet that is about to leave asks for no acknowledgement if it can do without.
    #[inline]
    pub(crate) fn maybe_delay_ack(&self, plan: &mut Plan) {
        let agreed = self.strom.as_ref().is_some_and(|strom| strom.agreed);
        let patient = agreed && self.attributes.parameters.timeout_ns >= SHORTEST_TIMEOUT_NS;
        let Some(Connection { requester, .. }) = self.connection.as_ref().filter(|_| patient) else { return };
        let ring = self.send.ring();
        // Slots come back with the acknowledgement, if anybody fills them.
        let free =
            |context: &WqeContext| context.end.wrapping_sub(ring.word(Word::Consumed)) <= ring.slots() / 2;
        let room = |context: &WqeContext| self.send.is_recycled() || free(context);
        let may = requester.context(plan).is_some_and(|context| context.may_delay_ack() && room(context));
        if may && requester.may_delay_ack(plan) {
            plan.ack_req = false;
        }
    }

    /// Does what a request asks for; a kernel may look on.
    #[inline(never)]
    pub(crate) fn execute_strom(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        action: Action,
        payload: &[u8],
        shared: &mut Shared,
    ) {
        let outcome = match (self.is_tapped(), action) {
            (_, Action::Fetch { len, .. }) if self.judge().is_some() => {
                self.execute_judged(mem, action, len, shared)
            }
            (true, _) => self.execute_tapped(mem, action, payload, shared),
            (false, _) => self.execute(mem, action, payload, shared),
        };
        self.conclude_delaying_ack(now, outcome, shared);
    }

    /// A packet has been executed.
    pub(super) fn conclude_delaying_ack(&mut self, now: Instant, outcome: Outcome, shared: &mut Shared) {
        let Some(Connection { responder, .. }) = &mut self.connection else { return };
        responder.conclude(outcome, &mut shared.counters);
        if responder.has_reply() {
            return;
        }
        if let Some(strom) = self.strom.as_mut().filter(|strom| strom.delayed_ack == Instant::NEVER) {
            strom.delayed_ack = now.after(DELAYED_ACK_NS);
        }
    }

    /// All that was owed has left.
    pub(crate) fn acknowledged(&mut self) {
        if let Some(strom) = &mut self.strom {
            strom.delayed_ack = Instant::NEVER;
        }
    }

    /// When `expire_strom` wants to be called.
    #[inline(always)]
    pub(crate) fn deadline_strom(&self) -> Instant {
        let when = |strom: &Strom| match &strom.unfit {
            None => strom.delayed_ack,
            Some(unfit) => strom.delayed_ack.min(unfit.deadline()),
        };
        self.strom.as_deref().map_or(Instant::NEVER, when)
    }

    /// An acknowledgement has waited for long enough, or bytes of a READ have.
    pub(crate) fn expire_strom(&mut self, now: Instant) {
        if let Some(unfit) = self.strom.as_mut().and_then(|strom| strom.unfit.as_mut()) {
            unfit.expire(now);
        }
        let Some(strom) = self.strom.as_mut().filter(|strom| strom.delayed_ack <= now) else { return };
        strom.delayed_ack = Instant::NEVER;
        if let Some(connection) = &mut self.connection {
            connection.responder.acknowledge();
        }
    }
}
