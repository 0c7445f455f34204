//! The invariants of an IRN responder between two events.

use super::Responder;
use crate::rc::irn::Arrival;

impl Responder {
    /// Asserts the invariants. Debug builds call this method after every event.
    pub fn check(&self) {
        assert!(self.pending.is_none(), "each step was concluded");
        self.receiver.check(self.ended || self.is_stalled());
        self.pending_acks.check(self.receiver.rcv_nxt(), |seq| {
            !self.keeps || self.ended || self.receiver.arrival(seq) == Arrival::GapDuplicate
        });
        self.sender.check();
        assert!(
            self.sender.snd_max() <= self.responses,
            "responses that were sent belong to executed requests"
        );
        self.reads.check(self.sender.snd_una());
        assert!(self.in_progress.is_none() || self.prism, "the peer agreed on PRISM");
    }

    /// Returns true if a request was refused, after which nothing is executed.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns the number of messages that used a receive work request and completed it.
    pub fn completed(&self) -> u64 {
        self.completed
    }
}
