//! The NIC's side of the receive queue. Each incoming message takes one work request.

use crate::config::NicError;
use crate::request::Sge;
use crate::ring::{FARTHEST, Ring, Word};
use crate::wqe::{MAX_SGE, SLOT, Wqe, high_bits, sges};
use remora_memory::Key;

/// A receive work request that a message has taken.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Receive {
    /// The id of the work request.
    pub id: u64,
    /// Index of the first slot.
    pub index: u64,
    /// Number of elements of the list.
    pub elements: usize,
    /// The first element.
    pub first: Sge,
}

/// A receive queue whose work requests all take the same number of slots.
pub(crate) struct ReceiveQueue {
    ring: Ring,
    stride: u64,
    produced: u64,
    taken: u64,
}

/// Returns the number of slots of a receive work request with up to `max_sge` elements.
pub fn stride(max_sge: u32) -> u64 {
    1 + u64::from(max_sge).saturating_sub(1).div_ceil(2)
}

impl ReceiveQueue {
    /// Creates a queue over `ring` for lists of up to `max_sge` elements.
    pub(crate) fn new(ring: Ring, max_sge: u32) -> Self {
        ReceiveQueue { ring, stride: stride(max_sge.min(MAX_SGE as u32)), produced: 0, taken: 0 }
    }

    /// Creates a buffer of `stride` slots for one work request that is taken from a shared receive queue.
    pub(crate) fn buffer(stride: u64) -> Result<Self, NicError> {
        let ring = Ring::heap(stride as u32).map_err(|_| NicError::Full)?;
        Ok(ReceiveQueue { ring, stride, produced: 0, taken: 0 })
    }

    /// Returns the memory of the queue.
    pub(crate) fn into_ring(self) -> Ring {
        self.ring
    }

    /// Creates a buffer for `count` work requests of a shared receive queue, see
    /// [`buffer`](ReceiveQueue::buffer).
    pub(crate) fn buffers(stride: u64, count: u64) -> Result<Self, NicError> {
        Ok(ReceiveQueue { stride, ..ReceiveQueue::buffer(stride * count)? })
    }

    /// Returns the number of slots of each work request.
    pub(crate) fn stride(&self) -> u64 {
        self.stride
    }

    /// Returns the maximum number of work requests in the queue.
    pub(crate) fn capacity(&self) -> u64 {
        self.ring.slots() / self.stride
    }

    /// Returns true if a work request is posted. The producer index is read only when no posted request is
    /// known.
    #[inline]
    pub(crate) fn ready(&mut self) -> bool {
        if self.taken + self.stride <= self.produced {
            return true;
        }
        self.produced = self.ring.word(Word::Produced).min(self.taken + self.ring.slots());
        self.taken + self.stride <= self.produced
    }

    /// Takes the next work request; `None` if the queue is empty.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Receive> {
        if !self.ready() {
            return None;
        }
        let index = self.taken;
        self.taken += self.stride;
        let mut slot = [0; SLOT];
        self.ring.load(index, &mut slot);
        Some(received_at(index, &slot, self.stride))
    }

    /// Stores a slot that was copied from a shared receive queue. In this mode the queue is only the buffer
    /// for the message that is being received.
    pub(crate) fn keep(&self, index: u64, slot: &[u8; SLOT]) {
        self.ring.store(index, slot);
    }

    /// Returns element `number` (1 or more) of a work request. Element 0 is `Receive::first`.
    pub(crate) fn element(&self, receive: &Receive, number: usize) -> Sge {
        element(&self.ring, receive.index, number)
    }

    /// Publishes to the program that the slots of `receive` are free.
    #[inline]
    pub(crate) fn free(&self, receive: &Receive) {
        self.ring.set_word(Word::Consumed, receive.index + self.stride);
    }

    /// Discards all posted work requests (transition to RESET). The indices continue from the producer index.
    pub(crate) fn reset(&mut self) {
        self.produced = self.ring.word(Word::Produced).min(FARTHEST);
        self.taken = self.produced;
        self.ring.set_word(Word::Consumed, self.produced);
        self.ring.set_word(Word::Error, 0);
    }

    /// Asserts that the number of posted work requests fits the ring.
    pub(crate) fn check(&self) {
        assert!(
            self.produced <= self.taken + self.ring.slots(),
            "posted slots that are not taken <= slots of the ring"
        );
    }

    /// Sets the ring's error word, so that the program rings a doorbell after each post.
    pub(crate) fn mark_error(&self) {
        self.ring.set_word(Word::Error, 1);
    }
}

/// Parses the receive work request whose first slot, at `index`, contains `slot`.
#[inline]
pub(crate) fn received_at(index: u64, slot: &[u8; SLOT], stride: u64) -> Receive {
    let wqe = Wqe::parse(slot);
    // A list longer than the stride would extend into the next request. It is truncated, and the length check
    // fails later.
    let elements = (wqe.compare as usize).min(2 * stride as usize - 1);
    Receive { id: wqe.id(), index, elements, first: wqe.sge() }
}

/// Returns element `number` (1 or more) of the list that starts in slot `index` of `ring`.
pub(crate) fn element(ring: &Ring, index: u64, number: usize) -> Sge {
    let mut slot = [0; SLOT];
    ring.load(index + 1 + (number as u64 - 1) / 2, &mut slot);
    sges(&slot)[(number - 1) % 2]
}

/// Encodes a receive work request, on the program's side. `store` is called once for each slot.
pub(crate) fn write_receive(id: u64, list: &[Sge], mut store: impl FnMut(usize, &[u8; SLOT])) {
    let first = list.first().copied().unwrap_or(Sge { addr: 0, len: 0, lkey: Key::new(0) });
    let wqe = Wqe {
        header: id << 16,
        local: first.addr,
        len: u64::from(first.len) | high_bits(id),
        keys: u64::from(first.lkey.get()),
        compare: list.len() as u64,
        ..Wqe::default()
    };
    store(0, &wqe.emit());
    for (index, pair) in list.get(1..).unwrap_or_default().chunks(2).enumerate() {
        store(1 + index, &crate::wqe::sge_slot(pair));
    }
}
