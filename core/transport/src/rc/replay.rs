//! READs and atomics at the responder: those still being answered, and answered ones that the peer may repeat
//! (IBTA vol. 1 §9.7.5.1.2; `max_dest_rd_atomic` of them).

use super::Seq;
use super::prism::KEPT;

/// Where the answer comes from.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Memory, fetched while the responses leave.
    Memory { key: u32, va: u64, len: u32 },
    /// The old value that the atomic found.
    Value(u64),
    /// The same, of 16 or 32 bytes: in the side store.
    Wide { size: u8 },
    /// A short READ's bytes, in the side store.
    Snapshot { len: u8 },
    /// Answers to the operations of a chain, all of them in the side store.
    Chain { len: u8 },
}

/// A request that is answered by data.
#[derive(Copy, Clone, Debug)]
pub(super) struct Entry {
    pub first: Seq,
    pub end: Seq,
    pub source: Source,
    /// Message sequence number that its responses carry.
    pub msn: u32,
    /// Credits that they carry: none kept, or how an operation of PRISM ended.
    pub credits: u8,
    /// First packet of the present answer: later than `first` when the tail of a READ is repeated.
    pub from: Seq,
    /// One past the last packet of the present answer.
    pub until: Seq,
    /// Next response packet.
    pub next: Seq,
}

/// The entries in order of their sequence numbers: a ring that forgets the oldest answered one when it is
/// full.
#[derive(Clone, Debug)]
pub(super) struct Replay {
    /// A power of two, at least `capacity`.
    ring: Box<[Option<Entry>]>,
    capacity: u64,
    /// Number of the next entry to come.
    tail: u64,
    /// The entry whose answer leaves next; it moves back when a request is repeated.
    pending: u64,
    /// Every entry before this one has been answered completely at least once.
    answered: u64,
    /// Entries before this one were forgotten.
    floor: u64,
    /// What does not fit an entry, beside the ring: for peers that agreed on PRISM.
    kept: Box<[[u8; KEPT]]>,
    /// One past the last entry of PRISM's whose answer is a value, not memory.
    valued: u64,
}

impl Replay {
    pub fn new(capacity: u8) -> Self {
        Replay {
            ring: vec![None; usize::from(capacity).next_power_of_two()].into_boxed_slice(),
            capacity: u64::from(capacity),
            tail: 0,
            pending: 0,
            answered: 0,
            floor: 0,
            kept: Box::default(),
            valued: 0,
        }
    }

    /// Allocates the buffers for answers that do not fit an entry.
    pub fn widen(&mut self) {
        self.kept = vec![[0; KEPT]; self.ring.len()].into_boxed_slice();
    }

    /// The buffer for the bytes of the next entry. The entry that used it before cannot be repeated any more
    /// when the next one is pushed.
    pub fn kept_buffer(&mut self) -> &mut [u8] {
        let slot = self.slot(self.tail);
        self.kept.get_mut(slot).map_or(&mut [], |kept| &mut kept[..])
    }

    /// Entries before this number are kept no more.
    pub fn kept_from(&self) -> u64 {
        self.oldest()
    }

    /// Drops all answers. False: one is still to leave, and all are kept.
    pub fn forget(&mut self) -> bool {
        if self.is_pending() {
            return false;
        }
        self.floor = self.tail;
        true
    }

    /// Number of the next entry to come.
    pub fn upcoming(&self) -> u64 {
        self.tail
    }

    /// Bytes that it takes besides itself.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.ring) + size_of_val(&*self.kept)
    }

    /// Asserts what holds of its counts and of the entry that is answered next. Every request before
    /// `rcv_nxt` was executed.
    pub fn check(&self, rcv_nxt: Seq) {
        let Replay { capacity, tail, pending, answered, floor, valued, .. } = *self;
        assert!(tail - answered <= capacity, "requests without an answer <= max_dest_rd_atomic");
        assert!(pending <= tail && floor <= tail && valued <= tail, "no entry of the replay is yet to come");
        assert!(self.oldest() <= pending, "an answer that leaves is kept");
        if let Some(entry) = self.front() {
            let Entry { first, end, from, next, until, .. } = *entry;
            assert!(
                first <= from && from <= next && next < until,
                "an answer has a packet to send: {entry:?}"
            );
            assert!(until <= end && end <= rcv_nxt, "an answer is to an executed request: {entry:?}");
        }
    }

    fn oldest(&self) -> u64 {
        self.tail.saturating_sub(self.capacity).max(self.floor)
    }

    #[inline]
    fn slot(&self, number: u64) -> usize {
        number as usize & (self.ring.len() - 1)
    }

    /// Would a further entry overwrite one that was never answered? Then the peer asks for more than was
    /// agreed.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.tail - self.answered >= self.capacity
    }

    /// Is anything still to be answered?
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.pending < self.tail
    }

    /// Appends an entry. The caller has checked `is_full`.
    #[inline]
    pub fn push(&mut self, entry: Entry) {
        debug_assert!(!self.is_full());
        let slot = self.slot(self.tail);
        self.ring[slot] = Some(entry);
        self.tail += 1;
        // A peer that sends a new request has the answer to the entry that this overwrites, even if that was
        // being repeated.
        if self.pending < self.oldest() {
            self.pending = self.oldest();
            self.skip_answered();
        }
    }

    /// As `push`, with the bytes of a wide value.
    pub fn push_wide(&mut self, entry: Entry, bytes: [u8; 32]) {
        if let Some(place) = self.kept_buffer().first_chunk_mut() {
            *place = bytes;
        }
        self.push_kept(entry);
    }

    /// As `push`; the bytes are in `kept_buffer`.
    pub fn push_kept(&mut self, entry: Entry) {
        self.push(entry);
        if !matches!(entry.source, Source::Memory { .. }) {
            self.valued = self.tail;
        }
    }

    /// What is kept for the entry whose response is next.
    pub fn front_kept(&self) -> &[u8] {
        self.kept.get(self.slot(self.pending)).map_or(&[], |kept| &kept[..])
    }

    /// The entry whose response is next.
    #[inline]
    pub fn front(&self) -> Option<&Entry> {
        if self.is_pending() { self.ring[self.slot(self.pending)].as_ref() } else { None }
    }

    /// Are several entries still to be answered, and a value of PRISM's among them?
    #[inline]
    pub fn has_value(&self) -> bool {
        self.valued > self.pending && self.tail - self.pending > 1
    }

    /// The entries that still have something to send, in order, and what is kept for them.
    pub fn waiting(&self) -> impl Iterator<Item = (&Entry, &[u8])> {
        let entries = (self.pending..self.tail).filter_map(|number| {
            let slot = self.slot(number);
            Some((self.ring[slot].as_ref()?, self.kept.get(slot).map_or(&[][..], |kept| &kept[..])))
        });
        entries.filter(|(entry, _)| entry.next < entry.until)
    }

    /// Its next packet has left.
    #[inline]
    pub fn sent(&mut self) {
        let slot = self.slot(self.pending);
        if let Some(entry) = &mut self.ring[slot] {
            entry.next += 1;
        }
        self.skip_answered();
        self.answered = self.answered.max(self.pending);
    }

    /// What is repeated may be followed by entries that are not.
    #[inline]
    fn skip_answered(&mut self) {
        while self.front().is_some_and(|entry| entry.next >= entry.until) {
            self.pending += 1;
        }
    }

    /// Nothing more is answered (the queue pair ends).
    pub fn clear(&mut self) {
        (self.pending, self.answered) = (self.tail, self.tail);
    }

    /// A request was sent again: answer the packets `first..end` of its entry once more. If they are still to
    /// leave anyway, it joins them. False if no entry holds them: too old, or not what was asked before.
    pub fn again(&mut self, first: Seq, end: Seq, same: impl Fn(&Entry) -> bool) -> bool {
        for number in self.oldest()..self.tail {
            let slot = self.slot(number);
            let Some(entry) = &mut self.ring[slot] else { continue };
            if first < entry.first || end > entry.end || !same(entry) {
                continue;
            }
            let joins = number >= self.pending && entry.next <= first && end <= entry.until;
            if !joins {
                (entry.from, entry.next, entry.until) = (first, first, end);
                self.pending = self.pending.min(number);
            }
            return true;
        }
        false
    }

    /// An operation of PRISM was sent again: its answer leaves once more from `seq` on, unless that is still
    /// to leave anyway. Its pointer is not followed again, so no answer mixes two targets. A chain's answer
    /// is one packet, whichever operation is repeated.
    pub fn again_from(&mut self, seq: Seq, until: impl Fn(&Entry) -> Seq) {
        for number in self.oldest()..self.tail {
            let slot = self.slot(number);
            let Some(entry) = &mut self.ring[slot] else { continue };
            let chain = matches!(entry.source, Source::Chain { .. });
            let end = until(entry);
            if seq < entry.first || seq >= if chain { entry.end } else { end } {
                continue;
            }
            let seq = if chain { entry.first } else { seq };
            if number < self.pending || entry.next > seq {
                (entry.from, entry.next, entry.until) = (seq, seq, end);
                self.pending = self.pending.min(number);
            }
            return;
        }
    }
}
