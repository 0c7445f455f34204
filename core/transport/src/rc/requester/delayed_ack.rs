//! What need not be acknowledged at once.

use super::{Plan, Requester};

/// Of so many packets that nobody waits for one asks.
const ACK_REQ_EVERY: u32 = 128;

impl<D: Copy> Requester<D> {
    /// May the peer take its time to acknowledge the planned packet? Not if it leaves a second time, if many before it have not asked,
    /// or if half of the messages that there is room for have not ended.
    #[inline]
    pub fn may_delay_ack(&self, plan: &Plan) -> bool {
        let first_time = self.tx_window.snd_nxt == self.tx_window.snd_max
            && self.force_ack_req_at <= self.tx_window.snd_nxt;
        let long_ago = self.since_ack_req + 1 >= ACK_REQ_EVERY.min(self.parameters.window / 4);
        plan.last && !plan.fetch && first_time && !long_ago && self.window.len() * 2 <= self.window.capacity()
    }
}
