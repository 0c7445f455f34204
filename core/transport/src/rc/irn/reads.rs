//! READs and atomics at the responder over IRN: the paper's READ WQE buffer (§5). A request that arrives
//! early waits in its place until its turn; one that was executed stays until its responses have all been
//! acknowledged.
//!
//! Responses are numbered here one behind the other. On the wire a READ of PRISM whose answer ended early has
//! numbers that nothing was sent with: each place knows how many of them there were before its own.

use crate::Atomic;
use crate::rc::Seq;

/// What a READ or atomic asks for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Bytes of memory.
    Memory {
        /// Remote key.
        key: u32,
        /// First byte.
        va: u64,
        /// Bytes.
        len: u32,
    },
    /// An atomic on 8 bytes.
    Atomic {
        /// Remote key.
        key: u32,
        /// Target.
        va: u64,
        /// Which.
        atomic: Atomic,
    },
    /// The old value of an atomic that was executed.
    Value(u64),
    /// The result of an operation of PRISM, and the credits that say how it ended.
    Number {
        /// 8 bytes.
        value: u64,
        /// Credits.
        credits: u8,
    },
    /// The same, of 16 or 32 bytes: in the side store.
    Wide {
        /// Bytes.
        size: u8,
        /// Credits.
        credits: u8,
    },
    /// What a short READ of PRISM found: in the side store.
    Snapshot {
        /// Bytes.
        len: u8,
        /// Credits.
        credits: u8,
    },
}

/// One READ or atomic.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The request's sequence number.
    pub request: Seq,
    /// What it asks for.
    pub wanted: Wanted,
    /// Its responses, once it was executed; empty before.
    pub first: Seq,
    /// One past the last of them.
    pub end: Seq,
    /// Message sequence number that its responses carry.
    pub msn: u32,
    /// Numbers skipped before its first response, modulo 2^32.
    pub skipped: u32,
}

/// Why a READ or atomic finds no place.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum NoPlace {
    /// Its number is not one that the requester may use now.
    Invalid,
}

/// The places, by number.
#[derive(Clone, Debug)]
pub struct Reads {
    ring: Box<[Option<Read>]>,
    capacity: u64,
    /// Oldest one whose responses are not all acknowledged.
    oldest: u64,
    /// The one that is executed next.
    next: u64,
    /// Bytes beside the ring, for peers that agreed on PRISM.
    wide: Box<[[u8; 32]]>,
}

impl Reads {
    /// Places for `capacity` of them (`max_dest_rd_atomic`).
    pub fn new(capacity: u8) -> Reads {
        Reads {
            ring: vec![None; usize::from(capacity).next_power_of_two()].into_boxed_slice(),
            capacity: u64::from(capacity),
            oldest: 0,
            next: 0,
            wide: Box::default(),
        }
    }

    /// Allocates the buffers for wide values.
    pub fn widen(&mut self) {
        self.wide = vec![[0; 32]; self.ring.len()].into_boxed_slice();
    }

    /// Number of the one that is executed next, and of the oldest one that is kept.
    pub fn bounds(&self) -> (u64, u64) {
        (self.next, self.oldest)
    }

    #[inline]
    fn slot(&self, number: u64) -> usize {
        number as usize & (self.ring.len() - 1)
    }

    /// The full number whose low 24 bits are `number`.
    #[inline]
    fn extend(&self, number: u32) -> u64 {
        let ahead = number.wrapping_sub(self.next as u32) & 0x00ff_ffff;
        if ahead < 1 << 23 {
            self.next + u64::from(ahead)
        } else {
            self.next.wrapping_sub((1 << 24) - u64::from(ahead))
        }
    }

    /// Keeps request `request`, the READ or atomic `number`, until its turn. A requester that sends it has
    /// the answers to all requests that are a whole capacity older. Returns up to which response, of those
    /// below `sent`, that acknowledges.
    ///
    /// # Errors
    /// [`NoPlace`]: nobody who keeps to what was agreed asks for it now.
    pub fn keep(
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
        let (mut oldest, mut acknowledged) = (self.oldest, None);
        while oldest + self.capacity <= number {
            // Not executed yet, or not all of it sent: then its answers cannot be there.
            let executed = self.ring[self.slot(oldest)].filter(|_| oldest < self.next);
            let end = executed.map(|read| read.end).filter(|end| *end <= sent).ok_or(NoPlace::Invalid)?;
            acknowledged = Some(end);
            oldest += 1;
        }
        // Only now: a request that is refused acknowledges nothing, and earlier answers may still have to
        // leave.
        self.oldest = oldest;
        let slot = self.slot(number);
        self.ring[slot] = Some(Read { request, wanted, first: 0, end: 0, msn: 0, skipped: 0 });
        Ok(acknowledged)
    }

    /// The one that is executed next, if `request` is it.
    #[inline]
    pub fn due(&self, request: Seq) -> Option<&Read> {
        let read = self.ring[self.slot(self.next)].as_ref()?;
        (self.next < self.oldest + self.capacity && read.request == request && read.end == 0).then_some(read)
    }

    /// The one that was due is executed; its responses are `first..end`. What it found, if its memory is not
    /// to be asked.
    pub fn executed(&mut self, found: Option<Wanted>, first: Seq, end: Seq, msn: u32, skipped: u32) {
        let slot = self.slot(self.next);
        if let Some(read) = &mut self.ring[slot] {
            (read.first, read.end, read.msn, read.skipped) = (first, end, msn, skipped);
            read.wanted = found.unwrap_or(read.wanted);
        }
        self.next += 1;
    }

    /// Keeps the bytes that the one executed next has found.
    pub fn store(&mut self, bytes: [u8; 32]) {
        let slot = self.slot(self.next);
        if let Some(place) = self.wide.get_mut(slot) {
            *place = bytes;
        }
    }

    /// The bytes kept for the one that response `seq` belongs to.
    pub fn stored(&self, seq: Seq) -> [u8; 32] {
        let number = self.executed_ones().find(|(_, read)| seq < read.end).map(|(number, _)| number);
        number.and_then(|number| self.wide.get(self.slot(number))).copied().unwrap_or_default()
    }

    /// Those that were executed and are kept, oldest first, with their numbers.
    pub fn executed_ones(&self) -> impl Iterator<Item = (u64, &Read)> {
        (self.oldest..self.next).filter_map(|number| Some((number, self.ring[self.slot(number)].as_ref()?)))
    }

    /// Responses before `una` are acknowledged.
    pub fn acknowledged(&mut self, una: Seq) {
        while self.oldest < self.next && self.ring[self.slot(self.oldest)].is_none_or(|read| read.end <= una)
        {
            self.oldest += 1;
        }
    }

    /// The executed one that response `seq` belongs to.
    pub fn of(&self, seq: Seq) -> Option<&Read> {
        let found = self.executed_ones().map(|(_, read)| read).find(|read| seq < read.end);
        found.filter(|read| read.first <= seq)
    }

    /// Asserts its counts, and that the oldest one that is kept has responses that are not acknowledged.
    pub fn check(&self, una: Seq) {
        assert!(self.oldest <= self.next, "a READ is executed before it is forgotten: {self:?}");
        assert!(
            self.next - self.oldest <= self.capacity,
            "READs that are kept <= max_dest_rd_atomic: {self:?}"
        );
        if self.oldest < self.next {
            let kept = self.ring[self.slot(self.oldest)];
            assert!(
                kept.is_some_and(|read| read.end > una),
                "a READ is kept for its responses: {kept:?}, {una}"
            );
        }
    }

    /// Bytes that it takes besides itself.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.ring) + size_of_val(&*self.wide)
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
        // It would have the answers to both, and that of the second has not left.
        assert_eq!(reads.keep(13, 3, WANTED, 101), Err(NoPlace::Invalid));
        assert_eq!(reads.bounds(), (2, 0));
        assert_eq!(reads.of(100).map(|read| read.request), Some(10));
        assert_eq!(reads.keep(12, 2, WANTED, 101), Ok(Some(101)));
    }

    #[test]
    fn one_that_arrives_early_waits_for_its_turn() {
        let mut reads = Reads::new(4);
        assert_eq!(reads.keep(11, 1, WANTED, 20), Ok(None));
        assert!(reads.due(11).is_none(), "the first one comes first");
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
