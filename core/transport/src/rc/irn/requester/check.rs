//! The invariants of an IRN requester between two events.

use super::Requester;
use crate::rc::irn::Place;
use crate::{Instant, rc::Seq};

impl<D: Copy> Requester<D> {
    /// Asserts the invariants. Debug builds call this method after every event.
    pub fn check(&self) {
        let sender = &self.sender;
        sender.check();
        assert!(sender.high() <= self.write_seq, "packets that were sent were submitted: {sender:?}");
        self.window.check(self.next_message, self.write_seq);
        let (head, tail) = self.window.bounds();
        let next = self.next_message;
        assert!(head <= next && next <= tail, "the next message was submitted and is not retired");
        self.check_responses();
        if self.window.len() > 0 && !self.failing.any() {
            self.check_running();
        }
    }

    /// Asserts that responses belong to outstanding READs and atomics, and that only received ones are
    /// acknowledged.
    fn check_responses(&self) {
        let expected = self.tracker.expected();
        self.tracker.check();
        assert!(expected <= self.next_response, "responses that arrived were requested");
        let there = |seq: Seq| self.tracker.place(seq) == Place::Again;
        self.owed.check(expected, |seq| !self.keeps || there(seq));
        let most = usize::from(self.parameters.max_rd_atomic);
        assert!(self.fetches.len() <= most, "outstanding READs and atomics <= max_rd_atomic");
        if let Some(last) = self.fetches.back() {
            assert!(
                last.first < last.end && last.until <= last.end,
                "a READ or atomic has at least one response: {last:?}"
            );
            assert!(last.end <= self.next_response, "outstanding responses were requested: {last:?}");
        }
    }

    /// Asserts, while no message fails, that every outstanding packet has a timer.
    fn check_running(&self) {
        let expected = self.tracker.expected();
        assert!(
            self.fetches.len() <= self.fetch_messages as usize,
            "outstanding READs are submitted messages"
        );
        if let Some(first) = self.fetches.front() {
            assert!(
                first.until > expected,
                "the oldest outstanding READ lacks a response: {first:?}, {expected}"
            );
        }
        let on_the_way = self.sender.una() < self.sender.high();
        let timer = self.rto.deadline() < Instant::NEVER || self.rto.is_resting() || !self.rto.expires();
        assert!(
            !on_the_way || timer || self.rnr_until > Instant(0),
            "a timer runs or rests while packets are in flight: {:?}",
            self.sender
        );
    }
}
