//! The NIC's side of the send queue: fetches WQEs in batches and hands out the copies.
//!
//! The time of fetching is part of the interface, because chains rewrite WQEs in memory: when all fetched
//! WQEs are executed, up to [`BATCH`] slots below the fetch limit are copied, and the copies are executed.
//! The limit is the producer index or, for a managed queue, also the enabled count. Lists of several elements
//! and inline data are read from the queue's memory only when their packets are built.

use crate::ring::{FARTHEST, Ring, Word};
use crate::wqe::{MAX_SLOTS, SLOT, Wqe};

/// Maximum number of slots fetched at once.
pub(crate) const BATCH: usize = 16;
const _: () = assert!(MAX_SLOTS <= BATCH, "one work request fits into one batch");

/// The fetch limit of a send queue.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Fetching {
    /// Slots are fetched up to the producer index.
    #[default]
    Posted,
    /// *Managed*: slots are fetched up to the producer index and the enabled count, whichever is less.
    Enabled,
    /// *Recycled*: slots are fetched up to the enabled count. The work requests are posted once, remain in
    /// the ring and are executed in every round (RedN, §3.4).
    Recycled,
}

/// The result of fetching the next work request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fetched {
    /// No work request below the fetch limit.
    Empty,
    /// A work request of `slots` slots, starting at slot `index`.
    Work {
        /// The first slot of the work request.
        wqe: Wqe,
        /// Index of the first slot.
        index: u64,
        /// Number of slots.
        slots: u64,
    },
    /// A malformed work request: the slot at `index` claims more slots than were posted or than any work
    /// request may have.
    Malformed {
        /// The first slot of the work request.
        wqe: Wqe,
        /// Index of the first slot.
        index: u64,
    },
}

/// A send queue. All counts are in slots since the creation of the queue.
pub(crate) struct SendQueue {
    ring: Ring,
    /// Posted slots, as last read from the producer index.
    produced: u64,
    /// Number of fetched slots.
    fetched: u64,
    /// Number of executed slots.
    taken: u64,
    /// Limit of fetching, computed from the fields below.
    limit: u64,
    fetching: Fetching,
    /// Enabled slots; ignored with `Fetching::Posted`.
    enabled: u64,
    /// Error state: all posted slots are flushed, enabled or not.
    flushing: bool,
    copies: Box<[[u8; SLOT]; BATCH]>,
}

/// Minimum number of messages in flight that a recycled queue supports, however few slots it has.
const ROUNDS: u32 = 32;

impl SendQueue {
    /// Creates a queue over `ring`.
    pub(crate) fn new(ring: Ring, fetching: Fetching) -> Self {
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

    /// Returns the memory of the queue.
    #[inline]
    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Returns true if the queue is recycled.
    pub(crate) fn is_recycled(&self) -> bool {
        self.fetching == Fetching::Recycled
    }

    /// Returns the maximum number of messages in flight.
    pub(crate) fn messages(&self) -> u32 {
        let slots = self.ring.slots() as u32;
        if self.is_recycled() { slots.max(ROUNDS) } else { slots }
    }

    /// Handles a doorbell: reads the producer index.
    #[inline]
    pub(crate) fn doorbell(&mut self) {
        // A producer index beyond the ring would make the NIC execute slots twice, so the index is limited to
        // one ring ahead.
        self.produced = self.ring.word(Word::Produced).min(self.taken + self.ring.slots()).max(self.produced);
        match self.fetching {
            Fetching::Posted => self.limit = self.produced,
            _ => self.limit_by_count(),
        }
    }

    /// Raises the enabled count to `count`; a lower value has no effect. Returns false if the queue is not
    /// managed or recycled.
    pub(crate) fn enable(&mut self, count: u64) -> bool {
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

    /// Returns true if there is work below the fetch limit.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.taken < self.limit
    }

    /// Does the same as [`next`](SendQueue::next); compiled out of line for the less frequent callers.
    #[inline(never)]
    pub(crate) fn next_outlined(&mut self) -> Fetched {
        self.next()
    }

    /// Returns the next work request, and fetches a batch if necessary. `take` moves past the request.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Fetched {
        self.fetch_if_empty();
        self.next_fetched()
    }

    /// Fetches a batch if all fetched slots are executed.
    #[inline(always)]
    fn fetch_if_empty(&mut self) {
        if self.taken == self.fetched {
            self.fetch(self.limit.min(self.taken + BATCH as u64));
        }
    }

    /// Returns the next work request like [`next`](SendQueue::next), but fetches none.
    #[inline(always)]
    pub(crate) fn next_fetched(&self) -> Fetched {
        if self.taken == self.fetched {
            return Fetched::Empty;
        }
        let index = self.taken;
        let wqe = Wqe::parse(&self.copies[index as usize % BATCH]);
        match wqe.slots().map(|slots| slots as u64) {
            Some(slots) if index + slots <= self.limit => Fetched::Work { wqe, index, slots },
            _ => Fetched::Malformed { wqe, index },
        }
    }

    /// Returns the next work request and its index, if it is *simple*: a SEND, WRITE or READ of one slot and
    /// at most one element, without inline data. Fetches a batch if necessary. `take_one` moves past the
    /// request.
    #[inline(always)]
    pub(crate) fn simple(&mut self) -> Option<(Wqe, u64)> {
        self.fetch_if_empty();
        let index = self.taken;
        // The fetched slots lie below the limit, so a request of one slot is complete.
        if index >= self.fetched.min(self.limit) {
            return None;
        }
        let wqe = Wqe::parse(&self.copies[index as usize % BATCH]);
        wqe.is_simple().then_some((wqe, index))
    }

    /// Moves past a [simple](SendQueue::simple) work request.
    #[inline(always)]
    pub(crate) fn take_one(&mut self) {
        self.taken += 1;
    }

    #[inline]
    fn fetch(&mut self, upto: u64) {
        while self.fetched < upto {
            let copy = &mut self.copies[self.fetched as usize % BATCH];
            self.ring.load(self.fetched, copy);
            self.fetched += 1;
        }
    }

    /// Moves past a work request of `slots` slots.
    #[inline]
    pub(crate) fn take(&mut self, slots: u64) {
        self.taken += slots;
        self.fetched = self.fetched.max(self.taken);
    }

    /// Returns the number of executed and of fetched slots, and the fetch limit.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        (self.taken, self.fetched, self.limit)
    }

    /// Returns the NIC's copy of a fetched slot; `None` if the slot was not fetched or its copy has been
    /// replaced.
    pub(crate) fn copy(&self, index: u64) -> Option<[u8; SLOT]> {
        (index < self.fetched && index + BATCH as u64 >= self.fetched)
            .then(|| self.copies[index as usize % BATCH])
    }

    /// Publishes to the program that the slots below `index` are free.
    #[inline]
    pub(crate) fn free(&self, index: u64) {
        // A recycled queue executes more slots than its program has posted.
        self.ring.set_word(Word::Consumed, index.min(self.produced));
    }

    /// Enters the error state: all posted slots are flushed, enabled or not.
    pub(crate) fn release_all(&mut self) {
        self.flushing = true;
        self.limit_by_count();
        self.ring.set_word(Word::Error, 1);
    }

    /// Leaves the SQE state: work requests that are posted from now on are executed.
    pub(crate) fn go_on(&mut self) {
        self.flushing = false;
        self.limit_by_count();
        self.ring.set_word(Word::Error, 0);
    }

    /// Asserts that the counts are ordered and that the limit follows from the posted and enabled counts.
    pub(crate) fn check(&self) {
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

    /// Discards all posted work requests (transition to RESET). The indices continue from the producer index.
    pub(crate) fn reset(&mut self) {
        self.produced = self.ring.word(Word::Produced).min(FARTHEST);
        (self.fetched, self.taken) = (self.produced, self.produced);
        self.ring.set_word(Word::Consumed, self.produced);
        self.ring.set_word(Word::Error, 0);
        (self.enabled, self.flushing) = (self.produced, false);
        self.limit_by_count();
    }
}
