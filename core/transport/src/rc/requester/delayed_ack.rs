//! The choice of requests whose ACKs may be delayed.

use super::{Plan, Requester};

/// Maximum number of packets between two packets that request an immediate ACK.
const ACK_REQ_EVERY: u32 = 128;

impl<D: Copy> Requester<D> {
    /// Clears the ACK request of a planned packet if it is the last submitted one and its ACK may be late.
    /// The ACK timer requests an ACK later, unless a further packet does.
    #[inline]
    pub fn delay_ack(&self, plan: &mut Plan) {
        let (_, next) = self.messages.window.bounds();
        if plan.number + 1 == next && self.may_delay_ack(plan) {
            plan.ack_req = false;
        }
    }

    /// Returns true if the peer may delay the ACK of the planned packet. Returns false for retransmissions,
    /// if many packets before it requested no ACK, or if more than half of the window is in use.
    #[inline]
    pub fn may_delay_ack(&self, plan: &Plan) -> bool {
        let first_time =
            self.sender.snd_nxt == self.sender.snd_max && self.force_ack_req_at <= self.sender.snd_nxt;
        let long_ago = self.since_ack_req + 1 >= ACK_REQ_EVERY.min(self.messages.parameters.window / 4);
        plan.last
            && !plan.fetch
            && first_time
            && !long_ago
            && self.messages.window.len() * 2 <= self.messages.window.capacity()
    }
}
