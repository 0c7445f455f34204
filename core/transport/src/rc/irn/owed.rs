//! The acknowledgements that a receiver owes its peer: a plain one, and a NACK for each packet that arrived
//! out of order.
//!
//! Several packets may arrive before an answer can leave. A bitmap records which of them are to be reported,
//! so that none is forgotten and the size is fixed.

use super::bitmap::Bitmap;
use crate::rc::Seq;

/// The next acknowledgement to send.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct OwedAck {
    /// The packet that is expected: everything before it has arrived.
    pub expected: Seq,
    /// A NACK: this packet has arrived ahead of it.
    pub sack: Option<Seq>,
}

/// The acknowledgements that are owed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwedAcks {
    plain: bool,
    ahead: Bitmap,
}

impl OwedAcks {
    /// None is owed yet, by a receiver that can record `size` packets ahead.
    pub fn new(size: u32) -> OwedAcks {
        OwedAcks { plain: false, ahead: Bitmap::new(size) }
    }

    /// A plain acknowledgement is owed.
    #[inline]
    pub fn acknowledge(&mut self) {
        self.plain = true;
    }

    /// The arrival of `seq`, ahead of the order, is to be reported.
    #[inline]
    pub fn report(&mut self, seq: Seq) {
        self.ahead.set(seq);
    }

    /// The order has advanced from `from` to `expected`: the plain acknowledgement covers everything before
    /// that.
    #[inline]
    pub fn passed(&mut self, from: Seq, expected: Seq) {
        if self.ahead.ones() > 0 {
            self.ahead.clear_range(from, expected);
        }
    }

    /// Is anything owed?
    #[inline]
    pub fn is_owed(&self) -> bool {
        self.plain || self.ahead.ones() > 0
    }

    /// The next answer: first the plain acknowledgement, so that a NACK behind it says nothing new about the
    /// order.
    #[inline]
    pub fn next(&self, expected: Seq) -> Option<OwedAck> {
        if self.plain {
            return Some(OwedAck { expected, sack: None });
        }
        if self.ahead.ones() == 0 {
            return None;
        }
        let sack = self.ahead.find(true, expected, expected + self.ahead.size())?;
        Some(OwedAck { expected, sack: Some(sack) })
    }

    /// That answer has left.
    #[inline]
    pub fn sent(&mut self, owed_ack: &OwedAck) {
        match owed_ack.sack {
            None => self.plain = false,
            Some(sack) => {
                self.ahead.clear(sack);
            }
        }
    }

    /// Asserts that it reports no packet as arrived that is not there.
    pub fn check(&self, expected: Seq, there: impl Fn(Seq) -> bool) {
        let end = expected + self.ahead.size();
        self.ahead.check(expected, end);
        if self.ahead.ones() > 0 {
            let reported = self.ahead.find(true, expected, end);
            assert!(reported.is_some_and(there), "a packet that is reported has arrived: {reported:?}");
        }
    }

    /// Bytes of its bitmap.
    pub fn bitmap_bytes(&self) -> usize {
        self.ahead.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(owed: &mut OwedAcks, expected: Seq) -> Vec<Option<Seq>> {
        let take = || {
            let owed_ack = owed.next(expected)?;
            owed.sent(&owed_ack);
            Some(owed_ack.sack)
        };
        std::iter::from_fn(take).collect()
    }

    #[test]
    fn the_plain_acknowledgement_goes_first_and_each_arrival_ahead_is_named_once() {
        let mut owed = OwedAcks::new(64);
        for seq in [105, 102, 103, 102] {
            owed.report(seq);
        }
        owed.acknowledge();
        owed.acknowledge();
        assert!(owed.is_owed());
        assert_eq!(all(&mut owed, 101), [None, Some(102), Some(103), Some(105)]);
        assert!(!owed.is_owed());
    }

    #[test]
    fn what_the_order_has_passed_is_not_named() {
        let mut owed = OwedAcks::new(64);
        (2..7).for_each(|seq| owed.report(seq));
        owed.passed(1, 5);
        assert_eq!(all(&mut owed, 5), [Some(5), Some(6)]);
        assert!(!owed.is_owed() && owed.next(5).is_none());
    }
}
