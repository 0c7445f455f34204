//! Go-back-N loss recovery (IBTA vol. 1 §9.7.5, §9.7.6). The receiver accepts packets in order only and
//! sends one NAK per gap. The sender then retransmits from the missing packet on. Names are TCP's (RFC 9293
//! §3.3.1, BSD).
//!
//! The sender decides which packet is next; the receiver decides how to treat a packet. IRN implements the
//! same two roles in another way ([`irn`](super::irn)).

use super::{HALF, Seq};

/// The sender's position in the sequence.
#[derive(Copy, Clone, Debug)]
pub(super) struct Sender {
    /// Oldest PSN that is not acknowledged.
    pub snd_una: Seq,
    /// Next PSN to send; less than `snd_max` while retransmitting.
    pub snd_nxt: Seq,
    /// The PSN after the largest PSN ever sent.
    pub snd_max: Seq,
    /// Value of `snd_una` at the last go-back caused by a NAK, so that one gap causes one go-back.
    returned_at: Option<Seq>,
}

impl Sender {
    pub(crate) fn new(first: Seq) -> Self {
        Sender { snd_una: first, snd_nxt: first, snd_max: first, returned_at: None }
    }

    /// Returns the number of packets that may be in flight: sent since the last go-back and not
    /// acknowledged.
    #[inline]
    pub(crate) fn in_flight(&self) -> u64 {
        self.snd_nxt.saturating_sub(self.snd_una)
    }

    #[inline]
    pub(crate) fn retransmitting(&self) -> bool {
        self.snd_nxt < self.snd_max
    }

    /// Records that `count` packets from `snd_nxt` on were sent.
    #[inline]
    pub(crate) fn sent(&mut self, count: u32) {
        self.snd_nxt += u64::from(count);
        self.snd_max = self.snd_max.max(self.snd_nxt);
    }

    /// Acknowledges every PSN before `upto`. Returns true if `snd_una` advanced.
    #[inline]
    pub(crate) fn acknowledge(&mut self, upto: Seq) -> bool {
        if upto <= self.snd_una {
            return false;
        }
        self.snd_una = upto;
        // An ACK can arrive while the packets that it covers are being retransmitted: these need not be
        // sent.
        self.snd_nxt = self.snd_nxt.max(upto);
        true
    }

    /// Returns true if a NAK for `snd_una` would cause a go-back: this gap has caused none, and a packet is
    /// in flight.
    #[inline]
    pub(crate) fn may_go_back(&self) -> bool {
        self.returned_at != Some(self.snd_una) && self.snd_nxt != self.snd_una
    }

    /// Goes back to `snd_una` because of a NAK. Returns false if this gap already caused a go-back.
    pub(crate) fn go_back(&mut self) -> bool {
        if !self.may_go_back() {
            return false;
        }
        self.returned_at = Some(self.snd_una);
        self.snd_nxt = self.snd_una;
        true
    }

    /// Retransmits from `seq` on, without the packets that are acknowledged.
    pub(crate) fn repeat_from(&mut self, seq: Seq) {
        self.snd_nxt = seq.clamp(self.snd_una, self.snd_nxt);
    }

    /// Goes back to `snd_una` after a timeout or an RNR NAK, without a limit on the number of times.
    pub(crate) fn restart(&mut self) {
        self.returned_at = None;
        self.snd_nxt = self.snd_una;
    }

    /// Asserts the order of the sequence numbers.
    pub(crate) fn check(&self) {
        let Sender { snd_una, snd_nxt, snd_max, .. } = *self;
        assert!(snd_una <= snd_nxt && snd_nxt <= snd_max, "snd_una <= snd_nxt <= snd_max: {self:?}");
        // With more than half of the PSN circle in flight, the side of `snd_una` on which a PSN lies would
        // be ambiguous.
        assert!(
            snd_max - snd_una <= u64::from(HALF),
            "less than half of the PSN circle is in flight: {self:?}"
        );
    }
}

/// Position of a received packet relative to `rcv_nxt`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The packet is the next one in order.
    InOrder,
    /// The packet was received before.
    Duplicate,
    /// The packet follows a gap. `report` is true if a NAK must be sent for this gap.
    Gap { report: bool },
}

/// The receiver's position in the sequence.
#[derive(Copy, Clone, Debug)]
pub(super) struct Receiver {
    /// PSN of the next packet in order.
    pub rcv_nxt: Seq,
    /// True if a NAK for `rcv_nxt` was sent. No other NAK is sent until that packet arrives (IBTA C9-114).
    nak_sent: bool,
}

impl Receiver {
    pub(crate) fn new(first: Seq) -> Self {
        Receiver { rcv_nxt: first, nak_sent: false }
    }

    #[inline]
    pub(crate) fn arrive(&mut self, seq: Seq) -> Arrival {
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

    /// Advances `rcv_nxt` by the `count` PSNs of a request that was executed.
    #[inline]
    pub(crate) fn advance(&mut self, count: u32) {
        self.rcv_nxt += u64::from(count);
        self.nak_sent = false;
    }

    /// Suppresses NAKs for packets in flight after an RNR NAK, which already requests `rcv_nxt` again.
    pub(crate) fn refuse(&mut self) {
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
        assert!(!sender.go_back(), "the same gap causes one go-back");
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
