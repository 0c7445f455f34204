//! The invariants of a responder over IRN, between two events.

use super::Responder;
use crate::rc::irn::Place;

impl Responder {
    /// Asserts them. Debug builds call it after every event.
    pub fn check(&self) {
        assert!(self.pending.is_none(), "each step has its outcome");
        self.receiver.check(self.ended || self.is_stalled());
        self.owed.check(self.receiver.expected(), |seq| {
            !self.keeps || self.ended || self.receiver.place(seq) == Place::Again
        });
        self.sender.check();
        assert!(self.sender.high() <= self.responses, "responses that left were executed");
        self.reads.check(self.sender.una());
        assert!(self.in_progress.is_none() || self.prism, "PRISM is agreed with the peer");
    }

    /// Has it refused a request, after which it executes nothing?
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Messages that took a receive work request and have completed it.
    pub fn completed(&self) -> u64 {
        self.completed
    }
}
