//! The program's side of a receive queue, of a shared receive queue and of a free list.

use remora_memory::Key;

use crate::receive_queue::{stride, write_receive};
use crate::request::{ReceiveRequest, Sge};
use crate::ring::{Ring, Word};
use crate::wqe::{MAX_SGE, PostError};

/// The program's side of a queue of receive work requests, each of which takes the same number of slots.
#[derive(Debug)]
pub struct ReceiveQueue {
    ring: Ring,
    /// Usable slots: all of the ring, fewer with a limit, or none if the queue is closed.
    slots: u64,
    stride: u64,
    max_sge: u32,
    produced: u64,
    /// The consumer index as last read. It is read again only when the queue looks full.
    consumed: u64,
}

impl ReceiveQueue {
    /// Creates a queue over `ring` for requests of up to `max_sge` scatter/gather elements.
    pub fn new(ring: Ring, max_sge: u32) -> ReceiveQueue {
        let max_sge = max_sge.min(MAX_SGE as u32);
        ReceiveQueue { slots: ring.slots(), ring, stride: stride(max_sge), max_sge, produced: 0, consumed: 0 }
    }

    /// Closes the queue, for a queue pair that only sends: it is always full.
    pub fn closed(self) -> ReceiveQueue {
        ReceiveQueue { slots: 0, ..self }
    }

    /// Limits the queue to `requests` requests, though the ring may have more slots.
    pub fn limited(self, requests: u32) -> ReceiveQueue {
        ReceiveQueue { slots: self.slots.min(u64::from(requests) * self.stride), ..self }
    }

    /// Continues from the index that an earlier program has published.
    pub fn resumed(self) -> ReceiveQueue {
        let produced = self.ring.word(Word::Produced);
        let consumed = self.ring.word(Word::Consumed).min(produced);
        ReceiveQueue { produced, consumed, ..self }
    }

    /// Returns the memory of the queue.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Returns the capacity in requests; 0 if the queue is closed.
    pub fn capacity(&self) -> u64 {
        self.slots / self.stride
    }

    /// Returns the maximum number of scatter/gather elements of a request.
    pub fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// Returns the number of slots filled since the creation of the queue.
    pub fn produced(&self) -> u64 {
        self.produced
    }

    /// Fills the slots of one request without publishing them.
    ///
    /// # Errors
    /// `TooManySges`; `QueueFull`. Nothing is filled then.
    #[inline]
    pub fn push(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        if request.sges.len() > self.max_sge as usize {
            return Err(PostError::TooManySges);
        }
        if self.produced + self.stride - self.consumed > self.slots {
            self.consumed = self.ring.word(Word::Consumed);
            if self.produced + self.stride - self.consumed > self.slots {
                return Err(PostError::QueueFull);
            }
        }
        let ring = &self.ring;
        let first = self.produced;
        write_receive(request.id, request.sges, |slot, bytes| ring.store(first + slot as u64, bytes));
        self.produced += self.stride;
        Ok(())
    }

    /// Posts one request: fills its slots and publishes them.
    ///
    /// # Errors
    /// The errors of [`push`](ReceiveQueue::push).
    #[inline]
    pub fn post(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.push(request)?;
        self.publish();
        Ok(())
    }

    /// Posts the buffer at address `addr` to a free list of PRISM, whose queue this is.
    ///
    /// # Errors
    /// `QueueFull` if the NIC has not taken earlier posts.
    pub fn post_buffer(&mut self, addr: u64) -> Result<(), PostError> {
        let sge = Sge { addr, len: 0, lkey: Key::new(0) };
        self.post(&ReceiveRequest { id: 0, sges: &[sge] })
    }

    /// Publishes the filled slots by the producer index.
    #[inline]
    pub fn publish(&mut self) {
        self.ring.set_word(Word::Produced, self.produced);
    }

    /// Takes back the request that was published last. The NIC must not have read the index meanwhile: its
    /// doorbell was not rung, and the calling thread is inside its engine.
    #[cold]
    pub fn withdraw(&mut self) {
        self.produced -= self.stride;
        self.publish();
    }

    /// Returns true if the queue pair is in the error state: the doorbell must then be rung after each post,
    /// so that the NIC flushes the request.
    #[inline]
    pub fn must_ring(&self) -> bool {
        self.ring.word(Word::Error) != 0
    }

    /// Makes the NIC use the posted requests round after round.
    ///
    /// # Errors
    /// `BadState` if the posted requests do not fill the ring.
    pub fn recycle(&mut self) -> Result<(), PostError> {
        if self.produced != self.ring.slots() {
            return Err(PostError::BadState);
        }
        self.ring.recycle();
        Ok(())
    }

    /// Continues in the ring to which the queue was resized.
    pub fn moved(&mut self, ring: Ring) {
        self.slots = ring.slots();
        self.ring = ring;
    }
}
