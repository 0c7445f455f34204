//! What a receiving half owes its peer: an acknowledgement, and a NACK for each packet that arrived out of order.
//!
//! Several arrivals may come before there is a chance to answer; a bitmap remembers which of them are to be named, so that
//! however many they are, nothing is forgotten and nothing grows.

use super::bitmap::Bitmap;
use crate::rc::Seq;

/// The next answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Owes {
    /// The packet that is expected: everything before it has arrived.
    pub expected: Seq,
    /// A NACK: this packet has arrived ahead of it.
    pub sack: Option<Seq>,
}

/// What is owed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Note {
    plain: bool,
    ahead: Bitmap,
}

impl Note {
    /// Nothing is, of a receiver that remembers `size` packets ahead.
    pub fn new(size: u32) -> Note {
        Note { plain: false, ahead: Bitmap::new(size) }
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

    /// The order has gone on from `from` to `expected`: what lies behind is said by the plain acknowledgement.
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

    /// The next answer: first the plain acknowledgement, so that a NACK behind it says nothing new about the order.
    #[inline]
    pub fn next(&self, expected: Seq) -> Option<Owes> {
        if self.plain {
            return Some(Owes { expected, sack: None });
        }
        if self.ahead.ones() == 0 {
            return None;
        }
        let sack = self.ahead.find(true, expected, expected + self.ahead.size())?;
        Some(Owes { expected, sack: Some(sack) })
    }

    /// That answer has left.
    #[inline]
    pub fn sent(&mut self, owes: &Owes) {
        match owes.sack {
            None => self.plain = false,
            Some(sack) => {
                self.ahead.clear(sack);
            }
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

    fn all(note: &mut Note, expected: Seq) -> Vec<Option<Seq>> {
        let take = || {
            let owes = note.next(expected)?;
            note.sent(&owes);
            Some(owes.sack)
        };
        std::iter::from_fn(take).collect()
    }

    #[test]
    fn the_plain_acknowledgement_goes_first_and_each_arrival_ahead_is_named_once() {
        let mut note = Note::new(64);
        for seq in [105, 102, 103, 102] {
            note.report(seq);
        }
        note.acknowledge();
        note.acknowledge();
        assert!(note.is_owed());
        assert_eq!(all(&mut note, 101), [None, Some(102), Some(103), Some(105)]);
        assert!(!note.is_owed());
    }

    #[test]
    fn what_the_order_has_passed_is_not_named() {
        let mut note = Note::new(64);
        (2..7).for_each(|seq| note.report(seq));
        note.passed(1, 5);
        assert_eq!(all(&mut note, 5), [Some(5), Some(6)]);
        assert!(!note.is_owed() && note.next(5).is_none());
    }
}
