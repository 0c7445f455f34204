//! The program's side of a send queue.

use crate::prism;
use crate::request::WorkRequest;
use crate::ring::{Ring, Word};
use crate::wqe::{Bounds, PostError, SLOT, Target, Wqe, write};

/// The program's side of a send queue. Slots are filled, then published together by the producer index.
#[derive(Debug)]
pub struct SendQueue {
    ring: Ring,
    /// Usable slots: all of the ring, or none if the queue is closed.
    slots: u64,
    bounds: Bounds,
    produced: u64,
    published: u64,
    /// The consumer index as last read. It is read again only when the queue looks full.
    consumed: u64,
    /// The limit of requests; `None` if only the slots limit the queue.
    limit: Option<RequestLimit>,
}

/// The limit of requests in a send queue whose ring could hold more.
#[derive(Debug)]
struct RequestLimit {
    max: u32,
    /// The number of the next request, counted from 0 and wrapping.
    next: u32,
    /// The number of the request that starts in each slot of the ring.
    numbers: Box<[u32]>,
}

impl RequestLimit {
    /// Returns true if as many requests as allowed lie between slot `consumed`, where a request starts, and
    /// slot `produced`, where the next one will start.
    #[inline]
    fn is_reached(&self, consumed: u64, produced: u64) -> bool {
        let outstanding =
            if consumed == produced { 0 } else { self.next.wrapping_sub(self.number(consumed)) };
        outstanding >= self.max
    }

    #[inline]
    fn number(&self, slot: u64) -> u32 {
        self.numbers[slot as usize & (self.numbers.len() - 1)]
    }

    #[inline]
    fn push(&mut self, slot: u64) {
        let place = slot as usize & (self.numbers.len() - 1);
        self.numbers[place] = self.next;
        self.next = self.next.wrapping_add(1);
    }
}

impl SendQueue {
    /// Creates a queue over `ring`, whose requests are within `bounds`.
    pub fn new(ring: Ring, bounds: Bounds) -> SendQueue {
        SendQueue { slots: ring.slots(), ring, bounds, produced: 0, published: 0, consumed: 0, limit: None }
    }

    /// Limits the queue to `max` requests, though the ring has more slots.
    pub fn limited(self, max: u32) -> SendQueue {
        let numbers = vec![0; self.ring.slots() as usize].into();
        SendQueue { limit: Some(RequestLimit { max, next: 0, numbers }), ..self }
    }

    /// Closes the queue, for a queue pair that only receives: it is always full.
    pub fn closed(self) -> SendQueue {
        SendQueue { slots: 0, ..self }
    }

    /// Continues from the index that an earlier program has published. A limit of requests must be set
    /// before, so that the requests in the queue count.
    pub fn resumed(mut self) -> SendQueue {
        self.published = self.ring.word(Word::Produced);
        self.consumed = self.ring.word(Word::Consumed).min(self.published);
        self.produced = self.consumed;
        self.advance_over(self.published);
        self
    }

    /// Returns the memory of the queue.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Returns the number of slots filled since the creation of the queue.
    #[inline]
    pub fn produced(&self) -> u64 {
        self.produced
    }

    /// Returns the number of slots published since the creation of the queue.
    #[inline]
    pub fn published(&self) -> u64 {
        self.published
    }

    /// Fills the slots of one request without publishing them.
    ///
    /// # Errors
    /// The reason why the request does not fit the queue. Nothing is filled then.
    #[inline]
    pub fn push(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        self.push_to(request, &Target::Peer)
    }

    /// Fills the slots of one request with a target of its own (a datagram or XRC) without publishing them.
    ///
    /// # Errors
    /// The errors of [`push`](SendQueue::push).
    #[inline]
    pub fn push_to(&mut self, request: &WorkRequest<'_>, target: &Target) -> Result<(), PostError> {
        match self.try_push(request, target) {
            Err(PostError::QueueFull) => self.push_after_look(request, target),
            done => done,
        }
    }

    /// Does the same as [`push_to`](SendQueue::push_to) after reading the consumer index.
    #[cold]
    #[inline(never)]
    fn push_after_look(&mut self, request: &WorkRequest<'_>, target: &Target) -> Result<(), PostError> {
        self.consumed = self.ring.word(Word::Consumed);
        self.try_push(request, target)
    }

    #[inline(always)]
    fn try_push(&mut self, request: &WorkRequest<'_>, target: &Target) -> Result<(), PostError> {
        let ring = &self.ring;
        let first = self.produced;
        let store = |slot: usize, bytes: &[u8; SLOT]| ring.store(first + slot as u64, bytes);
        let slots = write(request, target, &self.bounds, self.free(), store)?;
        self.advance(slots as u64);
        Ok(())
    }

    /// Fills the slots of a PRISM operation without publishing them.
    ///
    /// # Errors
    /// The errors of [`push`](SendQueue::push).
    #[inline]
    pub fn push_prism(&mut self, request: &prism::WorkRequest<'_>) -> Result<(), PostError> {
        match self.try_push_prism(request) {
            Err(PostError::QueueFull) => self.push_prism_after_look(request),
            done => done,
        }
    }

    /// Does the same as [`push_prism`](SendQueue::push_prism) after reading the consumer index.
    #[cold]
    #[inline(never)]
    fn push_prism_after_look(&mut self, request: &prism::WorkRequest<'_>) -> Result<(), PostError> {
        self.consumed = self.ring.word(Word::Consumed);
        self.try_push_prism(request)
    }

    #[inline(always)]
    fn try_push_prism(&mut self, request: &prism::WorkRequest<'_>) -> Result<(), PostError> {
        let ring = &self.ring;
        let first = self.produced;
        let store = |slot: usize, bytes: &[u8; SLOT]| ring.store(first + slot as u64, bytes);
        let slots = prism::write(request, &self.bounds, self.free(), store)?;
        self.advance(slots as u64);
        Ok(())
    }

    /// Fills slots with the bytes of encoded work requests (a chain program) without publishing them.
    ///
    /// # Errors
    /// `QueueFull`. Nothing is filled then.
    pub fn push_slots(&mut self, slots: &[[u8; SLOT]]) -> Result<(), PostError> {
        self.consumed = self.ring.word(Word::Consumed);
        if slots.len() > self.free() {
            return Err(PostError::QueueFull);
        }
        for (index, slot) in slots.iter().enumerate() {
            self.ring.store(self.produced + index as u64, slot);
        }
        self.advance_over(self.produced + slots.len() as u64);
        Ok(())
    }

    /// Fills one slot even if the NIC has not freed it, as a faulty program does, without publishing it.
    pub fn overwrite(&mut self, slot: &[u8; SLOT]) {
        self.ring.store(self.produced, slot);
        self.advance_over(self.produced + 1);
    }

    /// Returns the number of slots that the next request may take.
    #[inline]
    fn free(&self) -> usize {
        let limit = self.limit.as_ref();
        if limit.is_some_and(|limit| limit.is_reached(self.consumed, self.produced)) {
            return 0;
        }
        self.slots.saturating_sub(self.produced - self.consumed) as usize
    }

    /// Moves past one request, whose slots are filled.
    #[inline]
    fn advance(&mut self, slots: u64) {
        if let Some(limit) = &mut self.limit {
            limit.push(self.produced);
        }
        self.produced += slots;
    }

    /// Moves past all requests in the filled slots before `end`.
    fn advance_over(&mut self, end: u64) {
        if self.limit.is_none() {
            self.produced = end;
        }
        let mut slot = [0; SLOT];
        while self.produced < end {
            self.ring.load(self.produced, &mut slot);
            let slots = Wqe::parse(&slot).slots().unwrap_or(1) as u64;
            self.advance(slots.min(end - self.produced));
        }
    }

    /// Publishes the filled slots by the producer index. Returns false if there were none.
    #[inline]
    pub fn publish(&mut self) -> bool {
        if self.produced == self.published {
            return false;
        }
        self.published = self.produced;
        self.ring.set_word(Word::Produced, self.produced);
        true
    }

    /// Drops the slots that were filled since the last publication.
    pub fn take_back(&mut self) {
        self.forget_from(self.published);
    }

    /// Takes back the slots that were published from index `published` on. The NIC must not have read the
    /// index meanwhile: its doorbell was not rung, and the calling thread is inside its engine.
    #[cold]
    pub fn withdraw(&mut self, published: u64) {
        self.forget_from(published);
        self.published = published;
        self.ring.set_word(Word::Produced, published);
    }

    /// Drops the filled slots from index `slot` on, where a request starts.
    fn forget_from(&mut self, slot: u64) {
        if let Some(limit) = self.limit.as_mut().filter(|_| slot != self.produced) {
            limit.next = limit.number(slot);
        }
        self.produced = slot;
    }
}

#[cfg(test)]
mod tests;
