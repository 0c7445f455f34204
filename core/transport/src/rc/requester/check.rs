//! The invariants of a go-back-N requester between two events.

use super::Requester;
use crate::Instant;

impl<D: Copy> Requester<D> {
    /// Asserts the invariants. Debug builds call this method after every event.
    pub fn check(&self) {
        let sender = &self.sender;
        sender.check();
        self.messages.check(sender.snd_max);
        if !self.messages.failing.any() {
            self.check_next();
        }
        self.check_fetches();
        self.check_timer();
    }

    /// Asserts that the next packet belongs to the next message.
    fn check_next(&self) {
        let snd_nxt = self.sender.snd_nxt;
        let next = self.messages.window.get(self.messages.next_message);
        match next {
            None => {
                assert_eq!(snd_nxt, self.messages.write_seq, "without a next message, every message was sent")
            }
            Some(next) => assert!(
                next.first <= snd_nxt && snd_nxt < next.end,
                "snd_nxt lies in the next message: {snd_nxt}, {}..{}",
                next.first,
                next.end
            ),
        }
    }

    fn check_fetches(&self) {
        let most = usize::from(self.messages.parameters.max_rd_atomic);
        assert!(self.fetches.len() <= most, "outstanding READs and atomics <= max_rd_atomic");
        assert!(
            self.messages.fetch_messages as usize <= self.messages.window.len(),
            "READs and atomics are submitted messages"
        );
        assert!(self.verdicts.len() <= self.messages.window.len(), "results belong to submitted messages");
        let ends = self.fetches.front().zip(self.fetches.back());
        if let Some((first, last)) = ends {
            let sender = &self.sender;
            assert!(
                sender.snd_una < *first && first <= last && *last <= sender.snd_nxt,
                "outstanding READs and atomics lie between snd_una and snd_nxt: {first}, {last}, {sender:?}"
            );
        }
    }

    /// Asserts that a timer runs while the peer owes an ACK.
    fn check_timer(&self) {
        assert!(self.ack_req_end <= self.sender.snd_nxt, "packets that request an ACK were sent");
        let endless = self.messages.parameters.timeout_ns == u64::MAX;
        let over = self.messages.window.len() == 0 || self.messages.failing.any();
        assert!(
            endless || over || !self.ack_is_owed() || self.ack_deadline < Instant::NEVER,
            "the ACK timer runs while an ACK is owed"
        );
        assert!(self.retries <= self.messages.parameters.retry_cnt.max(7), "remaining retries <= 7");
    }
}
