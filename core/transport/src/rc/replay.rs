//! READs and atomics at the responder: those being answered, and answered ones that the peer may repeat
//! (IBTA vol. 1 §9.7.5.1.2). Their number is at most `max_dest_rd_atomic`.

use super::Seq;
use super::prism::KEPT;

/// The source of an answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Memory, read while the responses are sent.
    Memory { key: u32, va: u64, len: u32 },
    /// The old value of an atomic.
    Value(u64),
    /// An old value of 16 or 32 bytes, stored in `Replay::kept`.
    Wide { size: u8 },
    /// The bytes of a short READ, stored in `Replay::kept`.
    Snapshot { len: u8 },
    /// The answers to all operations of a list, stored in `Replay::kept`.
    OperationList { len: u8 },
}

/// A request that is answered with data.
#[derive(Copy, Clone, Debug)]
pub(super) struct Entry {
    pub first: Seq,
    pub end: Seq,
    pub source: Source,
    /// Message sequence number (MSN) that its responses carry.
    pub msn: u32,
    /// AETH credits that its responses carry: none, or the status of a PRISM operation.
    pub credits: u8,
    /// First PSN of the current answer; larger than `first` if only the tail of a READ is repeated.
    pub answer_first: Seq,
    /// The PSN after the last one of the current answer.
    pub answer_end: Seq,
    /// PSN of the next response packet.
    pub next: Seq,
}

/// The entries in order of their PSNs, in a ring. A full ring overwrites its oldest answered entry.
#[derive(Clone, Debug)]
pub(super) struct Replay {
    /// Slots of the ring; a power of two, at least `capacity`.
    ring: Box<[Option<Entry>]>,
    capacity: u64,
    /// Number of the next entry.
    tail: u64,
    /// Number of the entry whose answer is sent next; decreases when a request is repeated.
    pending: u64,
    /// Every entry before this number was answered completely at least once.
    answered: u64,
    /// Entries before this number were dropped.
    floor: u64,
    /// Answers that do not fit an entry, one per slot; empty unless the peer agreed on PRISM.
    kept: Box<[[u8; KEPT]]>,
    /// The position after the last PRISM entry whose answer is a value instead of memory.
    valued: u64,
}

impl Replay {
    pub(crate) fn new(capacity: u8) -> Self {
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
    pub(crate) fn widen(&mut self) {
        self.kept = vec![[0; KEPT]; self.ring.len()].into_boxed_slice();
    }

    /// Returns the buffer of the next entry. The previous entry in that slot can no longer be repeated when
    /// the next one is pushed.
    pub(crate) fn kept_buffer(&mut self) -> &mut [u8] {
        let slot = self.slot(self.tail);
        self.kept.get_mut(slot).map_or(&mut [], |kept| &mut kept[..])
    }

    /// Returns the number of the oldest entry that is kept.
    pub(crate) fn kept_from(&self) -> u64 {
        self.oldest()
    }

    /// Drops all answers. Returns false and keeps them if an answer remains to be sent.
    pub(crate) fn forget(&mut self) -> bool {
        if self.is_pending() {
            return false;
        }
        self.floor = self.tail;
        true
    }

    /// Returns the number of the next entry.
    pub(crate) fn upcoming(&self) -> u64 {
        self.tail
    }

    /// Asserts the invariants of the counts and of the entry that is answered next. All requests before
    /// `rcv_nxt` were executed.
    pub(crate) fn check(&self, rcv_nxt: Seq) {
        let Replay { capacity, tail, pending, answered, floor, valued, .. } = *self;
        assert!(tail - answered <= capacity, "unanswered requests <= max_dest_rd_atomic");
        assert!(pending <= tail && floor <= tail && valued <= tail, "entries of the replay were pushed");
        assert!(self.oldest() <= pending, "an answer that is sent is kept");
        if let Some(entry) = self.front() {
            let Entry { first, end, answer_first, next, answer_end, .. } = *entry;
            assert!(
                first <= answer_first && answer_first <= next && next < answer_end,
                "a pending answer has a packet to send: {entry:?}"
            );
            assert!(
                answer_end <= end && end <= rcv_nxt,
                "an answer belongs to an executed request: {entry:?}"
            );
        }
    }

    fn oldest(&self) -> u64 {
        self.tail.saturating_sub(self.capacity).max(self.floor)
    }

    #[inline]
    fn slot(&self, number: u64) -> usize {
        number as usize & (self.ring.len() - 1)
    }

    /// Returns true if another entry would overwrite one that was never answered. The peer then exceeds the
    /// agreed number of requests.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.tail - self.answered >= self.capacity
    }

    /// Returns true if an answer remains to be sent.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.pending < self.tail
    }

    /// Appends an entry. The caller has checked `is_full`.
    #[inline]
    pub(crate) fn push(&mut self, entry: Entry) {
        debug_assert!(!self.is_full());
        let slot = self.slot(self.tail);
        self.ring[slot] = Some(entry);
        self.tail += 1;
        // A new request proves that the peer has the answer to the entry that is overwritten, even if that
        // answer was being repeated.
        if self.pending < self.oldest() {
            self.pending = self.oldest();
            self.skip_answered();
        }
    }

    /// Appends an entry whose answer is `bytes`.
    pub(crate) fn push_wide(&mut self, entry: Entry, bytes: [u8; 32]) {
        if let Some(place) = self.kept_buffer().first_chunk_mut() {
            *place = bytes;
        }
        self.push_kept(entry);
    }

    /// Appends an entry whose answer was written to `kept_buffer`.
    pub(crate) fn push_kept(&mut self, entry: Entry) {
        self.push(entry);
        if !matches!(entry.source, Source::Memory { .. }) {
            self.valued = self.tail;
        }
    }

    /// Returns the kept bytes of the entry that is answered next.
    pub(crate) fn front_kept(&self) -> &[u8] {
        self.kept.get(self.slot(self.pending)).map_or(&[], |kept| &kept[..])
    }

    /// Returns the entry that is answered next.
    #[inline]
    pub(crate) fn front(&self) -> Option<&Entry> {
        if self.is_pending() { self.ring[self.slot(self.pending)].as_ref() } else { None }
    }

    /// Returns true if several entries remain to be answered and a PRISM value is among them.
    #[inline]
    pub(crate) fn has_value(&self) -> bool {
        self.valued > self.pending && self.tail - self.pending > 1
    }

    /// Returns the entries with responses to send, in order, and their kept bytes.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (&Entry, &[u8])> {
        let entries = (self.pending..self.tail).filter_map(|number| {
            let slot = self.slot(number);
            Some((self.ring[slot].as_ref()?, self.kept.get(slot).map_or(&[][..], |kept| &kept[..])))
        });
        entries.filter(|(entry, _)| entry.next < entry.answer_end)
    }

    /// Records that the next packet of the front entry was sent.
    #[inline]
    pub(crate) fn sent(&mut self) {
        let slot = self.slot(self.pending);
        if let Some(entry) = &mut self.ring[slot] {
            entry.next += 1;
        }
        self.skip_answered();
        self.answered = self.answered.max(self.pending);
    }

    /// Advances over entries that are fully answered, which may follow a repeated one.
    #[inline]
    fn skip_answered(&mut self) {
        while self.front().is_some_and(|entry| entry.next >= entry.answer_end) {
            self.pending += 1;
        }
    }

    /// Cancels all answers, because the queue pair ends.
    pub(crate) fn clear(&mut self) {
        (self.pending, self.answered) = (self.tail, self.tail);
    }

    /// Repeats the answer packets `first..end` for a duplicate request, unless these remain to be sent
    /// anyway. Returns false if no entry contains them, because the request is too old or differs from the
    /// original.
    pub(crate) fn again(&mut self, first: Seq, end: Seq, same: impl Fn(&Entry) -> bool) -> bool {
        for number in self.oldest()..self.tail {
            let slot = self.slot(number);
            let Some(entry) = &mut self.ring[slot] else { continue };
            if first < entry.first || end > entry.end || !same(entry) {
                continue;
            }
            let joins = number >= self.pending && entry.next <= first && end <= entry.answer_end;
            if !joins {
                (entry.answer_first, entry.next, entry.answer_end) = (first, first, end);
                self.pending = self.pending.min(number);
            }
            return true;
        }
        false
    }

    /// Repeats the answer to a PRISM operation from `seq` on, unless it remains to be sent anyway. The
    /// pointer is not dereferenced anew, so an answer never mixes two targets. The answer to an operation
    /// list is one packet, whichever of its operations is repeated.
    pub(crate) fn again_from(&mut self, seq: Seq, answer_end: impl Fn(&Entry) -> Seq) {
        for number in self.oldest()..self.tail {
            let slot = self.slot(number);
            let Some(entry) = &mut self.ring[slot] else { continue };
            let is_list = matches!(entry.source, Source::OperationList { .. });
            let end = answer_end(entry);
            if seq < entry.first || seq >= if is_list { entry.end } else { end } {
                continue;
            }
            let seq = if is_list { entry.first } else { seq };
            if number < self.pending || entry.next > seq {
                (entry.answer_first, entry.next, entry.answer_end) = (seq, seq, end);
                self.pending = self.pending.min(number);
            }
            return;
        }
    }
}
