//! The invariants of an IRN requester between two events.

use super::Requester;
use crate::rc::irn::Arrival;
use crate::{Instant, rc::Seq};

impl<D: Copy> Requester<D> {
    /// Asserts the invariants. Debug builds call this method after every event.
    pub fn check(&self) {
        let sender = &self.sender;
        sender.check();
        self.messages.check(sender.snd_max());
        self.check_responses();
        if self.messages.window.len() > 0 && !self.messages.failing.any() {
            self.check_running();
        }
    }

    /// Asserts that responses belong to outstanding READs and atomics, and that only received ones are
    /// acknowledged.
    fn check_responses(&self) {
        let rcv_nxt = self.tracker.rcv_nxt();
        self.tracker.check();
        assert!(rcv_nxt <= self.next_response, "responses that arrived were requested");
        let there = |seq: Seq| self.tracker.arrival(seq) == Arrival::GapDuplicate;
        self.pending_acks.check(rcv_nxt, |seq| !self.keeps || there(seq));
        let most = usize::from(self.messages.parameters.max_rd_atomic);
        assert!(self.fetches.len() <= most, "outstanding READs and atomics <= max_rd_atomic");
        if let Some(last) = self.fetches.back() {
            assert!(
                last.first < last.end && last.answer_end <= last.end,
                "a READ or atomic has at least one response: {last:?}"
            );
            assert!(last.end <= self.next_response, "outstanding responses were requested: {last:?}");
        }
    }

    /// Asserts, while no message fails, that every outstanding packet has a timer.
    fn check_running(&self) {
        let rcv_nxt = self.tracker.rcv_nxt();
        assert!(
            self.fetches.len() <= self.messages.fetch_messages as usize,
            "outstanding READs are submitted messages"
        );
        if let Some(first) = self.fetches.front() {
            assert!(
                first.answer_end > rcv_nxt,
                "the oldest outstanding READ lacks a response: {first:?}, {rcv_nxt}"
            );
        }
        let on_the_way = self.sender.snd_una() < self.sender.snd_max();
        let timer = self.rto.deadline() < Instant::NEVER || self.rto.is_resting() || !self.rto.expires();
        assert!(
            !on_the_way || timer || self.messages.rnr_until > Instant(0),
            "a timer runs or rests while packets are in flight: {:?}",
            self.sender
        );
    }
}
