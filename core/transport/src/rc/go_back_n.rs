//! Loss recovery: go-back-N (IBTA vol. 1 §9.7.5, §9.7.6). The receiver takes packets in order only and sends
//! one NAK per gap; the sender then starts again from the missing packet. Names are TCP's (RFC 9293, BSD).
//!
//! Other recovery machines can take its place: the sender says which packet is next, the receiver what to do
//! with a packet.

use super::{HALF, Seq};

/// Sender side: where we are in the sequence.
#[derive(Copy, Clone, Debug)]
pub(super) struct Sender {
    /// Oldest packet that is not known to have arrived.
    pub snd_una: Seq,
    /// Next packet to transmit; behind `snd_max` while retransmitting.
    pub snd_nxt: Seq,
    /// One past the highest packet ever transmitted.
    pub snd_max: Seq,
    /// The `snd_una` at which a NAK last made us go back: one gap, one return.
    returned_at: Option<Seq>,
}

impl Sender {
    pub fn new(first: Seq) -> Self {
        Sender { snd_una: first, snd_nxt: first, snd_max: first, returned_at: None }
    }

    /// Packets that may be on the way: everything transmitted since the last return and not acknowledged.
    #[inline]
    pub fn in_flight(&self) -> u64 {
        self.snd_nxt.saturating_sub(self.snd_una)
    }

    #[inline]
    pub fn retransmitting(&self) -> bool {
        self.snd_nxt < self.snd_max
    }

    /// `count` sequence numbers from `snd_nxt` on have left.
    #[inline]
    pub fn sent(&mut self, count: u32) {
        self.snd_nxt += u64::from(count);
        self.snd_max = self.snd_max.max(self.snd_nxt);
    }

    /// Everything before `upto` arrived. True if that is news.
    #[inline]
    pub fn acknowledge(&mut self, upto: Seq) -> bool {
        if upto <= self.snd_una {
            return false;
        }
        self.snd_una = upto;
        // An acknowledgement can overtake the retransmission of what it acknowledges.
        self.snd_nxt = self.snd_nxt.max(upto);
        true
    }

    /// Would a NAK for `snd_una` be news?
    #[inline]
    pub fn may_go_back(&self) -> bool {
        self.returned_at != Some(self.snd_una) && self.snd_nxt != self.snd_una
    }

    /// A NAK says that `snd_una` is missing: goes back, once. False if it already did.
    pub fn go_back(&mut self) -> bool {
        if !self.may_go_back() {
            return false;
        }
        self.returned_at = Some(self.snd_una);
        self.snd_nxt = self.snd_una;
        true
    }

    /// Retransmits from `seq` on, but nothing that was acknowledged.
    pub fn repeat_from(&mut self, seq: Seq) {
        self.snd_nxt = seq.clamp(self.snd_una, self.snd_nxt);
    }

    /// Goes back after a timeout or an RNR NAK, any number of times.
    pub fn restart(&mut self) {
        self.returned_at = None;
        self.snd_nxt = self.snd_una;
    }

    /// Asserts the order of its numbers.
    pub fn check(&self) {
        let Sender { snd_una, snd_nxt, snd_max, .. } = *self;
        assert!(snd_una <= snd_nxt && snd_nxt <= snd_max, "snd_una <= snd_nxt <= snd_max: {self:?}");
        // Beyond half of the circle a PSN no longer says on which side of `snd_una` it lies.
        assert!(
            snd_max - snd_una <= u64::from(HALF),
            "less than half of the PSN circle is in flight: {self:?}"
        );
    }
}

/// Receiver side: what to do with a request that has arrived.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The one expected.
    InOrder,
    /// Seen before.
    Duplicate,
    /// Ahead of a gap; `report`: no NAK has been sent for it yet.
    Gap { report: bool },
}

/// Receiver side: which packet comes next.
#[derive(Copy, Clone, Debug)]
pub(super) struct Receiver {
    /// The sequence number that is executed next.
    pub rcv_nxt: Seq,
    /// A NAK for `rcv_nxt` was sent: no other one is until it arrives (IBTA C9-114 and following).
    nak_sent: bool,
}

impl Receiver {
    pub fn new(first: Seq) -> Self {
        Receiver { rcv_nxt: first, nak_sent: false }
    }

    #[inline]
    pub fn arrive(&mut self, seq: Seq) -> Arrival {
        if seq == self.rcv_nxt {
            Arrival::InOrder
        } else if seq < self.rcv_nxt {
            Arrival::Duplicate
        } else {
            let report = !self.nak_sent;
            self.nak_sent = true;
            Arrival::Gap { report }
        }
    }

    /// The expected request took `count` sequence numbers and is done.
    #[inline]
    pub fn advance(&mut self, count: u32) {
        self.rcv_nxt += u64::from(count);
        self.nak_sent = false;
    }

    /// An RNR NAK asks for `rcv_nxt` again: packets that are still on the way get no NAK.
    pub fn refuse(&mut self) {
        self.nak_sent = true;
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
        assert_eq!((sender.snd_nxt, sender.snd_max), (11, 14));
    }

    #[test]
    #[should_panic(expected = "snd_una <= snd_nxt <= snd_max")]
    fn the_check_sees_numbers_out_of_order() {
        let mut sender = Sender::new(10);
        sender.sent(4);
        sender.check();
        sender.snd_una = 15;
        sender.check();
    }

    #[test]
    fn an_acknowledgement_overtakes_the_second_walk() {
        let mut sender = Sender::new(0);
        sender.sent(8);
        sender.restart();
        sender.sent(1);
        assert!(sender.acknowledge(6));
        assert_eq!((sender.snd_una, sender.snd_nxt, sender.in_flight()), (6, 6, 0));
    }
}
