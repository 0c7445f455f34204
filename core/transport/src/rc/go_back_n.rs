//! Loss recovery: go-back-N (IBTA vol. 1 §9.7.5, §9.7.6). The receiver takes packets in order only and says once per gap
//! which one it misses; the sender then starts again from there.
//!
//! This is the seam for other recovery machines: the sender answers *which packet next*, the receiver *what about this one*.

use super::Seq;

/// Sender side: where we are in the sequence.
#[derive(Copy, Clone, Debug)]
pub(super) struct Sender {
    /// Oldest packet that is not known to have arrived.
    pub una: Seq,
    /// Next packet to transmit; behind `high` while going over old ground.
    pub cursor: Seq,
    /// One past the highest packet ever transmitted.
    pub high: Seq,
    /// The `una` at which we last went back on the receiver's word: one gap, one return.
    returned_at: Option<Seq>,
}

impl Sender {
    pub fn new(first: Seq) -> Self {
        Sender { una: first, cursor: first, high: first, returned_at: None }
    }

    /// Packets that may be on the way: everything transmitted since the last return and not acknowledged.
    #[inline]
    pub fn in_flight(&self) -> u64 {
        self.cursor.saturating_sub(self.una)
    }

    #[inline]
    pub fn retransmitting(&self) -> bool {
        self.cursor < self.high
    }

    /// `count` sequence numbers from `cursor` on have left.
    #[inline]
    pub fn sent(&mut self, count: u32) {
        self.cursor += u64::from(count);
        self.high = self.high.max(self.cursor);
    }

    /// Everything before `upto` arrived. True if that is news.
    #[inline]
    pub fn acknowledge(&mut self, upto: Seq) -> bool {
        if upto <= self.una {
            return false;
        }
        self.una = upto;
        // An acknowledgement of old ground can overtake our second walk over it.
        self.cursor = self.cursor.max(upto);
        true
    }

    /// Would the peer's word that it misses `una` be news?
    #[inline]
    pub fn may_go_back(&self) -> bool {
        self.returned_at != Some(self.una) && self.cursor != self.una
    }

    /// The peer misses `una`: go back, once. False if we already did.
    pub fn go_back(&mut self) -> bool {
        if !self.may_go_back() {
            return false;
        }
        self.returned_at = Some(self.una);
        self.cursor = self.una;
        true
    }

    /// Goes over the ground from `seq` on once more, without giving up what was acknowledged.
    pub fn repeat_from(&mut self, seq: Seq) {
        self.cursor = seq.clamp(self.una, self.cursor);
    }

    /// Nothing was heard for too long, or the peer asked to wait: go back, however often.
    pub fn restart(&mut self) {
        self.returned_at = None;
        self.cursor = self.una;
    }
}

/// Receiver side: what to do with a request that has arrived.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The one expected.
    InOrder,
    /// Seen before.
    Duplicate,
    /// Ahead of a gap; `report`: the peer has not been told yet.
    Gap { report: bool },
}

/// Receiver side: which packet comes next.
#[derive(Copy, Clone, Debug)]
pub(super) struct Receiver {
    /// The sequence number that is executed next.
    pub expected: Seq,
    /// A NAK for `expected` is out: stay silent until it arrives (IBTA C9-114 and following).
    told: bool,
}

impl Receiver {
    pub fn new(first: Seq) -> Self {
        Receiver { expected: first, told: false }
    }

    #[inline]
    pub fn arrive(&mut self, seq: Seq) -> Arrival {
        if seq == self.expected {
            Arrival::InOrder
        } else if seq < self.expected {
            Arrival::Duplicate
        } else {
            let report = !self.told;
            self.told = true;
            Arrival::Gap { report }
        }
    }

    /// The expected request took `count` sequence numbers and is done.
    #[inline]
    pub fn advance(&mut self, count: u32) {
        self.expected += u64::from(count);
        self.told = false;
    }

    /// The peer was told to send `expected` again (RNR): what is still on the way is no news.
    pub fn refuse(&mut self) {
        self.told = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_gap_is_reported_once_and_one_report_goes_back_once() {
        let mut receiver = Receiver::new(10);
        assert_eq!(receiver.arrive(12), Arrival::Gap { report: true });
        assert_eq!(receiver.arrive(13), Arrival::Gap { report: false });
        assert_eq!(receiver.arrive(10), Arrival::InOrder);
        receiver.advance(1);
        assert_eq!(receiver.arrive(9), Arrival::Duplicate);
        assert_eq!(receiver.arrive(12), Arrival::Gap { report: true });

        let mut sender = Sender::new(10);
        sender.sent(4);
        assert!(sender.acknowledge(11) && sender.go_back());
        sender.sent(1);
        assert!(!sender.go_back(), "the same gap twice");
        sender.restart();
        assert_eq!((sender.cursor, sender.high), (11, 14));
    }

    #[test]
    fn an_acknowledgement_overtakes_the_second_walk() {
        let mut sender = Sender::new(0);
        sender.sent(8);
        sender.restart();
        sender.sent(1);
        assert!(sender.acknowledge(6));
        assert_eq!((sender.una, sender.cursor, sender.in_flight()), (6, 6, 0));
    }
}
