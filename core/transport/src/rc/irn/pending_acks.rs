//! The acknowledgements that a receiver must still send: a cumulative one, and a NACK for each packet that
//! arrived after a gap.
//!
//! Several packets may arrive before an acknowledgement can be sent. A bitmap records the packets to report,
//! so that none is lost and the size is fixed.

use super::bitmap::Bitmap;
use crate::rc::Seq;

/// An acknowledgement to send.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PendingAck {
    /// The next packet in order: every packet before this one has arrived.
    pub rcv_nxt: Seq,
    /// For a NACK, the packet that arrived after a gap; `None` for a cumulative acknowledgement.
    pub sack: Option<Seq>,
}

/// The acknowledgements that a receiver must still send.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PendingAcks {
    plain: bool,
    ahead: Bitmap,
}

impl PendingAcks {
    /// Returns an empty set for a receiver that can record `size` packets after a gap.
    pub(crate) fn new(size: u32) -> PendingAcks {
        PendingAcks { plain: false, ahead: Bitmap::new(size) }
    }

    /// Schedules a cumulative acknowledgement.
    #[inline]
    pub(crate) fn acknowledge(&mut self) {
        self.plain = true;
    }

    /// Schedules a NACK that reports the arrival of `seq` after a gap.
    #[inline]
    pub(crate) fn report(&mut self, seq: Seq) {
        self.ahead.set(seq);
    }

    /// Drops the NACKs for the packets `first..rcv_nxt`, which the cumulative acknowledgement now covers.
    #[inline]
    pub(crate) fn passed(&mut self, first: Seq, rcv_nxt: Seq) {
        if self.ahead.ones() > 0 {
            self.ahead.clear_range(first, rcv_nxt);
        }
    }

    /// Returns true if an acknowledgement must be sent.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.plain || self.ahead.ones() > 0
    }

    /// Returns the next acknowledgement. The cumulative one comes first, so that a NACK after it does not
    /// move the window.
    #[inline]
    pub(crate) fn next(&self, rcv_nxt: Seq) -> Option<PendingAck> {
        if self.plain {
            return Some(PendingAck { rcv_nxt, sack: None });
        }
        if self.ahead.ones() == 0 {
            return None;
        }
        let sack = self.ahead.find(true, rcv_nxt, rcv_nxt + self.ahead.size())?;
        Some(PendingAck { rcv_nxt, sack: Some(sack) })
    }

    /// Records that `pending_ack` was sent.
    #[inline]
    pub(crate) fn sent(&mut self, pending_ack: &PendingAck) {
        match pending_ack.sack {
            None => self.plain = false,
            Some(sack) => {
                self.ahead.clear(sack);
            }
        }
    }

    /// Asserts that only packets that arrived are reported.
    pub(crate) fn check(&self, rcv_nxt: Seq, there: impl Fn(Seq) -> bool) {
        let end = rcv_nxt + self.ahead.size();
        self.ahead.check(rcv_nxt, end);
        if self.ahead.ones() > 0 {
            let reported = self.ahead.find(true, rcv_nxt, end);
            assert!(reported.is_some_and(there), "a reported packet has arrived: {reported:?}");
        }
    }

    /// Returns the bytes that the bitmap occupies.
    pub(crate) fn bitmap_bytes(&self) -> usize {
        self.ahead.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pending: &mut PendingAcks, rcv_nxt: Seq) -> Vec<Option<Seq>> {
        let take = || {
            let pending_ack = pending.next(rcv_nxt)?;
            pending.sent(&pending_ack);
            Some(pending_ack.sack)
        };
        std::iter::from_fn(take).collect()
    }

    #[test]
    fn the_plain_acknowledgement_goes_first_and_each_arrival_ahead_is_named_once() {
        let mut pending = PendingAcks::new(64);
        for seq in [105, 102, 103, 102] {
            pending.report(seq);
        }
        pending.acknowledge();
        pending.acknowledge();
        assert!(pending.is_pending());
        assert_eq!(all(&mut pending, 101), [None, Some(102), Some(103), Some(105)]);
        assert!(!pending.is_pending());
    }

    #[test]
    fn what_the_order_has_passed_is_not_named() {
        let mut pending = PendingAcks::new(64);
        (2..7).for_each(|seq| pending.report(seq));
        pending.passed(1, 5);
        assert_eq!(all(&mut pending, 5), [Some(5), Some(6)]);
        assert!(!pending.is_pending() && pending.next(5).is_none());
    }
}
