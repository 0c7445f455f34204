//! Requests whose ACKs may be delayed.

use super::{Plan, Requester};

/// One of so many packets whose ACKs may be delayed asks for one at once.
const ACK_REQ_EVERY: u32 = 128;

impl<D: Copy> Requester<D> {
    /// May the ACK of the planned packet be delayed? Not if it is a retransmission, if many packets before it
    /// did not ask, or if more than half of the window is in use.
    #[inline]
    pub fn may_delay_ack(&self, plan: &Plan) -> bool {
        let first_time = self.tx_window.snd_nxt == self.tx_window.snd_max
            && self.force_ack_req_at <= self.tx_window.snd_nxt;
        let long_ago = self.since_ack_req + 1 >= ACK_REQ_EVERY.min(self.parameters.window / 4);
        plan.last && !plan.fetch && first_time && !long_ago && self.window.len() * 2 <= self.window.capacity()
    }
}
