//! The send queue as the NIC sees it: fetches batches of WQEs and hands out the copies.
//!
//! Fetching is defined, not incidental: when the fetched WQEs run out, up to [`BATCH`] slots below the fetch
//! limit are copied, and the copies are executed. The limit is the producer index or, for a queue that is
//! enabled, the enabled count. Lists of several elements and inline data are read from the queue's memory
//! when their packets are built.

use crate::ring::{FARTHEST, Ring, Word};
use crate::wqe::{MAX_SLOTS, SLOT, Wqe};

/// Slots fetched at once.
pub const BATCH: usize = 16;
const _: () = assert!(MAX_SLOTS <= BATCH, "one work request fits into one batch");

/// How far a send queue is fetched.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Fetching {
    /// As far as it is posted.
    #[default]
    Posted,
    /// *Managed*: as far as it is posted and enabled.
    Enabled,
    /// *Recycled*: as far as it is enabled. What was posted once stands in a ring and is executed again on
    /// every round (RedN, §3.4).
    Recycled,
}

/// What the queue has for the executor.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// Nothing below the limit.
    Empty,
    /// A work request in `slots` slots from `index` on.
    Work {
        /// Its first slot.
        wqe: Wqe,
        /// Where that stands.
        index: u64,
        /// Slots that it takes.
        slots: u64,
    },
    /// The slot at `index` claims more slots than were posted or than any work request may take.
    Malformed {
        /// Its first slot.
        wqe: Wqe,
        /// Where that stands.
        index: u64,
    },
}

/// A send queue.
pub struct SendQueue {
    ring: Ring,
    /// Slots posted, as last read from the producer index.
    produced: u64,
    /// Slots copied.
    fetched: u64,
    /// Slots executed.
    taken: u64,
    /// Slots that may be fetched: follows from what comes below.
    limit: u64,
    fetching: Fetching,
    /// Fetched only up to this count, if it is to be enabled.
    enabled: u64,
    /// In error: everything posted is taken, enabled or not, and nothing else.
    flushing: bool,
    copies: Box<[[u8; SLOT]; BATCH]>,
}

/// Messages of a recycled queue that may be on their way, however few slots it has.
const ROUNDS: u32 = 32;

impl SendQueue {
    /// A queue over `ring`.
    pub fn new(ring: Ring, fetching: Fetching) -> Self {
        let copies = Box::new([[0; SLOT]; BATCH]);
        SendQueue {
            ring,
            produced: 0,
            fetched: 0,
            taken: 0,
            limit: 0,
            fetching,
            enabled: 0,
            flushing: false,
            copies,
        }
    }

    /// The queue's memory.
    #[inline]
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Does it run round after round, whatever is free?
    pub fn is_recycled(&self) -> bool {
        self.fetching == Fetching::Recycled
    }

    /// Messages that may be on their way at a time.
    pub fn messages(&self) -> u32 {
        let slots = self.ring.slots() as u32;
        if self.is_recycled() { slots.max(ROUNDS) } else { slots }
    }

    /// Reads the producer index: a doorbell rang.
    #[inline]
    pub fn doorbell(&mut self) {
        // An index that runs ahead of the ring would only make us read slots twice; never further than one
        // ring.
        self.produced = self.ring.word(Word::Produced).min(self.taken + self.ring.slots()).max(self.produced);
        match self.fetching {
            Fetching::Posted => self.limit = self.produced,
            _ => self.limit_by_count(),
        }
    }

    /// Slots up to `count` may be fetched; the count never falls. False: this queue is not one that is
    /// enabled.
    pub fn enable(&mut self, count: u64) -> bool {
        self.enabled = self.enabled.max(count.min(FARTHEST));
        self.limit_by_count();
        self.fetching != Fetching::Posted
    }

    #[inline(never)]
    fn limit_by_count(&mut self) {
        self.limit = match self.fetching {
            Fetching::Recycled if !self.flushing => self.enabled,
            Fetching::Enabled if !self.flushing => self.enabled.min(self.produced),
            _ => self.produced,
        };
    }

    /// Is there work below the limit?
    #[inline]
    pub fn has_work(&self) -> bool {
        self.taken < self.limit
    }

    /// As [`next`](SendQueue::next), for what is not busy.
    #[inline(never)]
    pub fn next_outlined(&mut self) -> Fetched {
        self.next()
    }

    /// The next work request, fetched if need be; `take` moves past it.
    #[inline(always)]
    pub fn next(&mut self) -> Fetched {
        if self.taken == self.fetched {
            self.fetch(self.limit.min(self.taken + BATCH as u64));
            if self.taken == self.fetched {
                return Fetched::Empty;
            }
        }
        let index = self.taken;
        let wqe = Wqe::parse(&self.copies[index as usize % BATCH]);
        match wqe.slots().map(|slots| slots as u64) {
            Some(slots) if index + slots <= self.limit => Fetched::Work { wqe, index, slots },
            _ => Fetched::Malformed { wqe, index },
        }
    }

    #[inline]
    fn fetch(&mut self, upto: u64) {
        while self.fetched < upto {
            let copy = &mut self.copies[self.fetched as usize % BATCH];
            self.ring.load(self.fetched, copy);
            self.fetched += 1;
        }
    }

    /// The work request of `slots` slots is being executed.
    #[inline]
    pub fn take(&mut self, slots: u64) {
        self.taken += slots;
        self.fetched = self.fetched.max(self.taken);
    }

    /// Slots executed, slots copied, and how far they may be.
    pub fn counts(&self) -> (u64, u64, u64) {
        (self.taken, self.fetched, self.limit)
    }

    /// The copy of a slot, until a later one takes its place.
    pub fn copy(&self, index: u64) -> Option<[u8; SLOT]> {
        (index < self.fetched && index + BATCH as u64 >= self.fetched)
            .then(|| self.copies[index as usize % BATCH])
    }

    /// Tells the program that slots below `index` are free.
    #[inline]
    pub fn free(&self, index: u64) {
        // A recycled queue's rounds go on beyond what its program has posted.
        self.ring.set_word(Word::Consumed, index.min(self.produced));
    }

    /// For flushing: everything posted counts, enabled or not.
    pub fn release_all(&mut self) {
        self.flushing = true;
        self.limit_by_count();
        self.ring.set_word(Word::Error, 1);
    }

    /// Out of SQE: what is posted from now on is executed.
    pub fn go_on(&mut self) {
        self.flushing = false;
        self.limit_by_count();
        self.ring.set_word(Word::Error, 0);
    }

    /// Asserts the order of its indices, and that its limit follows from what was posted and enabled.
    pub fn check(&self) {
        let SendQueue { produced, fetched, taken, limit, enabled, fetching, flushing, .. } = *self;
        let slots = self.ring.slots();
        assert!(
            taken <= fetched && fetched - taken <= BATCH as u64,
            "0 <= fetched - executed slots <= a batch"
        );
        assert!(produced <= taken + slots, "posted slots that are not executed <= slots of the ring");
        assert!(self.is_recycled() || fetched <= produced, "only slots that are posted are fetched");
        let expected = match fetching {
            Fetching::Recycled if !flushing => enabled,
            Fetching::Enabled if !flushing => enabled.min(produced),
            _ => produced,
        };
        assert_eq!(limit, expected, "the fetch limit follows from what is posted and enabled");
    }

    /// Forgets everything posted (RESET): the program's indices go on from here.
    pub fn reset(&mut self) {
        self.produced = self.ring.word(Word::Produced).min(FARTHEST);
        (self.fetched, self.taken) = (self.produced, self.produced);
        self.ring.set_word(Word::Consumed, self.produced);
        self.ring.set_word(Word::Error, 0);
        (self.enabled, self.flushing) = (self.produced, false);
        self.limit_by_count();
    }
}
