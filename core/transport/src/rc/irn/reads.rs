//! READs and atomics at an IRN responder: the READ WQE buffer of the paper's §5. A request that arrives
//! early is kept until all earlier packets have arrived. An executed request is kept until the peer has
//! acknowledged all its responses.
//!
//! Responses have consecutive sequence numbers here. On the wire, a PRISM READ with a shortened answer
//! leaves some of its reserved PSNs unused. Each entry records how many PSNs were skipped before its first
//! response.

use crate::Atomic;
use crate::rc::Seq;

/// The data that answers a READ or atomic.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A range of memory (READ).
    Memory {
        /// Remote key of the accessed region.
        key: u32,
        /// Virtual address of the first byte.
        va: u64,
        /// Length in bytes.
        len: u32,
    },
    /// An atomic operation on 8 bytes that is not executed yet.
    Atomic {
        /// Remote key of the accessed region.
        key: u32,
        /// Virtual address of the 8 bytes.
        va: u64,
        /// The operation and its operands.
        atomic: Atomic,
    },
    /// The old value of an executed atomic operation.
    Value(u64),
    /// The 8-byte result of a PRISM operation. The AETH credits encode how the operation ended.
    Number {
        /// Result of the atomic operation.
        value: u64,
        /// AETH credit code.
        credits: u8,
    },
    /// A result of 16 or 32 bytes of a PRISM operation, kept in `Reads::wide`.
    Wide {
        /// Length in bytes.
        size: u8,
        /// AETH credit code.
        credits: u8,
    },
    /// The bytes that a short PRISM READ returned, kept in `Reads::wide`.
    Snapshot {
        /// Length in bytes.
        len: u8,
        /// AETH credit code.
        credits: u8,
    },
}

/// A READ or atomic request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    /// PSN of the request.
    pub request: Seq,
    /// The data that answers it.
    pub wanted: Wanted,
    /// Sequence number of the first response; equal to `end` until the request is executed.
    pub first: Seq,
    /// The sequence number after the last response; 0 until the request is executed.
    pub end: Seq,
    /// Message sequence number (MSN) that the responses carry.
    pub msn: u32,
    /// Number of PSNs skipped before the first response, modulo 2^32.
    pub skipped: u32,
}

/// The reason why a READ or atomic cannot be kept.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// A correct requester cannot use the request's number now.
    Invalid,
}

/// The READs and atomics in a ring, indexed by their number.
#[derive(Clone, Debug)]
pub(crate) struct Reads {
    ring: Box<[Option<Read>]>,
    capacity: u64,
    /// Number of the oldest request whose responses are not all acknowledged.
    oldest: u64,
    /// Number of the request that is executed next.
    next: u64,
    /// Results of up to 32 bytes, one per slot of the ring; empty unless the peer agreed on PRISM.
    wide: Box<[[u8; 32]]>,
}

impl Reads {
    /// Returns a buffer for `capacity` requests (`max_dest_rd_atomic`).
    pub(crate) fn new(capacity: u8) -> Reads {
        Reads {
            ring: vec![None; usize::from(capacity).next_power_of_two()].into_boxed_slice(),
            capacity: u64::from(capacity),
            oldest: 0,
            next: 0,
            wide: Box::default(),
        }
    }

    /// Allocates the buffers for PRISM results.
    pub(crate) fn widen(&mut self) {
        self.wide = vec![[0; 32]; self.ring.len()].into_boxed_slice();
    }

    /// Returns the number of the request that is executed next, and of the oldest request that is kept.
    pub(crate) fn bounds(&self) -> (u64, u64) {
        (self.next, self.oldest)
    }

    #[inline]
    fn slot(&self, number: u64) -> usize {
        number as usize & (self.ring.len() - 1)
    }

    /// Returns the full number whose low 24 bits are `number`.
    #[inline]
    fn extend(&self, number: u32) -> u64 {
        let ahead = number.wrapping_sub(self.next as u32) & 0x00ff_ffff;
        if ahead < 1 << 23 {
            self.next + u64::from(ahead)
        } else {
            self.next.wrapping_sub((1 << 24) - u64::from(ahead))
        }
    }

    /// Keeps READ or atomic `number`, whose request has PSN `request`, until it is executed. The request
    /// proves that the requester has received the responses of all requests at least `capacity` older. If
    /// that acknowledges responses, returns one past the last of them. Only responses before `sent` have
    /// been sent.
    ///
    /// # Errors
    /// [`NoPlace::Invalid`] if a correct requester could not have sent this request now.
    pub(crate) fn keep(
        &mut self,
        request: Seq,
        number: u32,
        wanted: Wanted,
        sent: Seq,
    ) -> Result<Option<Seq>, NoPlace> {
        let number = self.extend(number);
        if number < self.next || number >= self.next + self.capacity {
            return Err(NoPlace::Invalid);
        }
        let mut oldest = self.oldest;
        let mut acknowledged = None;
        while oldest + self.capacity <= number {
            // Responses that were not all sent cannot have arrived.
            let executed = self.ring[self.slot(oldest)].filter(|_| oldest < self.next);
            let end = executed.map(|read| read.end).filter(|end| *end <= sent).ok_or(NoPlace::Invalid)?;
            acknowledged = Some(end);
            oldest += 1;
        }
        // A refused request must not acknowledge anything, because earlier responses may still have to be
        // sent.
        self.oldest = oldest;
        let slot = self.slot(number);
        self.ring[slot] = Some(Read { request, wanted, first: 0, end: 0, msn: 0, skipped: 0 });
        Ok(acknowledged)
    }

    /// Returns the request that is executed next if its PSN is `request` and it has arrived.
    #[inline]
    pub(crate) fn due(&self, request: Seq) -> Option<&Read> {
        let read = self.ring[self.slot(self.next)].as_ref()?;
        (self.next < self.oldest + self.capacity && read.request == request && read.end == 0).then_some(read)
    }

    /// Records that the next request was executed and is answered by the responses `first..end`. `wanted` is
    /// the result if it is not read from memory when the responses are sent.
    pub(crate) fn executed(&mut self, wanted: Option<Wanted>, first: Seq, end: Seq, msn: u32, skipped: u32) {
        let slot = self.slot(self.next);
        if let Some(read) = &mut self.ring[slot] {
            (read.first, read.end, read.msn, read.skipped) = (first, end, msn, skipped);
            read.wanted = wanted.unwrap_or(read.wanted);
        }
        self.next += 1;
    }

    /// Stores the result bytes of the request that is executed next. Without PRISM, does nothing.
    pub(crate) fn store(&mut self, bytes: [u8; 32]) {
        let slot = self.slot(self.next);
        if let Some(place) = self.wide.get_mut(slot) {
            *place = bytes;
        }
    }

    /// Returns the stored bytes of the request that response `seq` belongs to.
    pub(crate) fn stored(&self, seq: Seq) -> [u8; 32] {
        let number = self.executed_ones().find(|(_, read)| seq < read.end).map(|(number, _)| number);
        number.and_then(|number| self.wide.get(self.slot(number))).copied().unwrap_or_default()
    }

    /// Returns the executed requests that are kept, with their numbers, oldest first.
    pub(crate) fn executed_ones(&self) -> impl Iterator<Item = (u64, &Read)> {
        (self.oldest..self.next).filter_map(|number| Some((number, self.ring[self.slot(number)].as_ref()?)))
    }

    /// Drops the requests whose responses are all before `una`, because the peer acknowledged them.
    pub(crate) fn acknowledged(&mut self, una: Seq) {
        while self.oldest < self.next && self.ring[self.slot(self.oldest)].is_none_or(|read| read.end <= una)
        {
            self.oldest += 1;
        }
    }

    /// Returns the executed request that response `seq` belongs to.
    pub(crate) fn of(&self, seq: Seq) -> Option<&Read> {
        let read = self.executed_ones().map(|(_, read)| read).find(|read| seq < read.end);
        read.filter(|read| read.first <= seq)
    }

    /// Asserts the order of the numbers and that the oldest kept request has unacknowledged responses.
    pub(crate) fn check(&self, una: Seq) {
        assert!(self.oldest <= self.next, "a READ is executed before it is dropped: {self:?}");
        assert!(self.next - self.oldest <= self.capacity, "kept READs <= max_dest_rd_atomic: {self:?}");
        if self.oldest < self.next {
            let kept = self.ring[self.slot(self.oldest)];
            assert!(
                kept.is_some_and(|read| read.end > una),
                "a kept READ has unacknowledged responses: {kept:?}, {una}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Wanted = Wanted::Memory { key: 1, va: 2, len: 3 };

    #[test]
    fn one_that_is_refused_acknowledges_nothing() {
        let mut reads = Reads::new(2);
        for number in 0..2 {
            reads.keep(10 + number, number as u32, WANTED, 100).unwrap();
            reads.executed(None, 100 + number, 101 + number, 1, 0);
        }
        // Request 3 would acknowledge both earlier ones, but the response of the second was not sent.
        assert_eq!(reads.keep(13, 3, WANTED, 101), Err(NoPlace::Invalid));
        assert_eq!(reads.bounds(), (2, 0));
        assert_eq!(reads.of(100).map(|read| read.request), Some(10));
        assert_eq!(reads.keep(12, 2, WANTED, 101), Ok(Some(101)));
    }

    #[test]
    fn one_that_arrives_early_waits_for_its_turn() {
        let mut reads = Reads::new(4);
        assert_eq!(reads.keep(11, 1, WANTED, 20), Ok(None));
        assert!(reads.due(11).is_none(), "the first request is executed first");
        assert_eq!(reads.keep(10, 0, WANTED, 20), Ok(None));
        assert_eq!(reads.due(10).map(|read| read.request), Some(10));
        reads.executed(None, 100, 103, 1, 0);
        assert_eq!(reads.due(11).map(|read| read.request), Some(11));
        reads.executed(Some(Wanted::Value(7)), 103, 104, 2, 0);
        assert_eq!(reads.of(102).map(|read| read.request), Some(10));
        assert_eq!(reads.of(103).map(|read| read.wanted), Some(Wanted::Value(7)));
        assert!(reads.of(104).is_none());
        reads.acknowledged(103);
        assert!(reads.of(100).is_none() && reads.of(103).is_some());
    }

    #[test]
    fn a_new_one_shows_that_the_answers_to_the_oldest_are_there() {
        let mut reads = Reads::new(2);
        for number in 0..2 {
            reads.keep(number, number as u32, WANTED, 20).unwrap();
            reads.executed(None, number * 10, number * 10 + 10, 0, 0);
        }
        assert_eq!(reads.keep(3, 3, WANTED, 20), Ok(Some(20)));
        assert_eq!(reads.keep(2, 2, WANTED, 20), Ok(None));
        assert!(reads.due(2).is_some());
    }

    #[test]
    fn numbers_that_nobody_may_use_now_are_refused() {
        let mut reads = Reads::new(2);
        assert_eq!(reads.keep(0, 2, WANTED, 20), Err(NoPlace::Invalid));
        assert_eq!(reads.keep(0, 0x00ff_ffff, WANTED, 20), Err(NoPlace::Invalid));
        assert_eq!(reads.keep(0, 0, WANTED, 20), Ok(None));
        reads.executed(None, 0, 1, 0, 0);
        assert_eq!(reads.keep(0, 0, WANTED, 20), Err(NoPlace::Invalid), "executed");
        assert_eq!(Reads::new(0).keep(0, 0, WANTED, 20), Err(NoPlace::Invalid), "none agreed");
    }

    #[test]
    fn numbers_go_round_their_24_bits() {
        let mut reads = Reads::new(2);
        reads.next = 0x00ff_ffff;
        reads.oldest = 0x00ff_ffff;
        assert_eq!(reads.keep(5, 0, WANTED, 20), Ok(None));
        assert_eq!(reads.keep(4, 0x00ff_ffff, WANTED, 20), Ok(None));
        assert!(reads.due(4).is_some());
        reads.executed(None, 0, 1, 0, 0);
        assert!(reads.due(5).is_some());
    }
}
