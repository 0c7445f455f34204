//! The receive queue as the NIC sees it: one work request at a time is taken for the message that arrives.

use crate::config::NicError;
use crate::request::Sge;
use crate::ring::{FARTHEST, Ring, Word};
use crate::wqe::{MAX_SGE, SLOT, Wqe, high_bits, sges};
use remora_memory::{Bytes, Key};

/// A receive work request taken for a message.
#[derive(Copy, Clone, Debug)]
pub struct Receive {
    /// The program's id.
    pub id: u64,
    /// Its first slot.
    pub index: u64,
    /// Elements of its list.
    pub elements: usize,
    /// The first element.
    pub first: Sge,
}

/// A receive queue whose work requests all take the same number of slots.
pub struct ReceiveQueue {
    ring: Ring,
    stride: u64,
    produced: u64,
    taken: u64,
}

/// Slots of a receive work request with up to `max_sge` elements.
pub fn stride(max_sge: u32) -> u64 {
    1 + u64::from(max_sge).saturating_sub(1).div_ceil(2)
}

impl ReceiveQueue {
    /// A queue over `ring` for lists of up to `max_sge` elements.
    pub fn new(ring: Ring, max_sge: u32) -> Self {
        ReceiveQueue { ring, stride: stride(max_sge.min(MAX_SGE as u32)), produced: 0, taken: 0 }
    }

    /// A buffer for one work request of a shared receive queue, `stride` slots long.
    pub fn buffer(stride: u64) -> Result<Self, NicError> {
        let bytes = Bytes::heap(Ring::size(stride as u32)).map_err(|_| NicError::Full)?;
        let ring = Ring::new(bytes).ok_or(NicError::TooSmall)?;
        Ok(ReceiveQueue { ring, stride, produced: 0, taken: 0 })
    }

    /// Its memory.
    pub fn into_ring(self) -> Ring {
        self.ring
    }

    /// The same for `count` of them.
    pub fn buffers(stride: u64, count: u64) -> Result<Self, NicError> {
        Ok(ReceiveQueue { stride, ..ReceiveQueue::buffer(stride * count)? })
    }

    /// Slots of each work request.
    pub fn stride(&self) -> u64 {
        self.stride
    }

    /// Work requests that it holds at most.
    pub fn capacity(&self) -> u64 {
        self.ring.slots() / self.stride
    }

    /// Is a work request posted? Reads the producer index only when none is known.
    #[inline]
    pub fn ready(&mut self) -> bool {
        if self.taken + self.stride <= self.produced {
            return true;
        }
        self.produced = self.ring.word(Word::Produced).min(self.taken + self.ring.slots());
        self.taken + self.stride <= self.produced
    }

    /// Takes the next work request.
    #[inline]
    pub fn take(&mut self) -> Option<Receive> {
        if !self.ready() {
            return None;
        }
        let index = self.taken;
        self.taken += self.stride;
        let mut slot = [0; SLOT];
        self.ring.load(index, &mut slot);
        Some(received_at(index, &slot, self.stride))
    }

    /// Fills a slot with a slot of a shared receive queue: this queue is only the buffer for the message
    /// under way.
    pub fn keep(&self, index: u64, slot: &[u8; SLOT]) {
        self.ring.store(index, slot);
    }

    /// Element `number` (1 or more) of a work request.
    pub fn element(&self, receive: &Receive, number: usize) -> Sge {
        element(&self.ring, receive.index, number)
    }

    /// Tells the program that the slots of `receive` are free.
    #[inline]
    pub fn free(&self, receive: &Receive) {
        self.ring.set_word(Word::Consumed, receive.index + self.stride);
    }

    /// Forgets everything posted (RESET): the program's indices go on from here.
    pub fn reset(&mut self) {
        self.produced = self.ring.word(Word::Produced).min(FARTHEST);
        self.taken = self.produced;
        self.ring.set_word(Word::Consumed, self.produced);
        self.ring.set_word(Word::Error, 0);
    }

    /// Asserts that no more work requests wait than the ring holds.
    pub fn check(&self) {
        assert!(
            self.produced <= self.taken + self.ring.slots(),
            "posted slots that are not taken <= slots of the ring"
        );
    }

    /// Posting must tell the NIC from now on.
    pub fn mark_error(&self) {
        self.ring.set_word(Word::Error, 1);
    }
}

/// The work request whose first slot is at `index`.
#[inline]
pub(crate) fn received_at(index: u64, slot: &[u8; SLOT], stride: u64) -> Receive {
    let wqe = Wqe::parse(slot);
    // A list longer than the stride would run into the neighbour: cut, so that the length check fails later.
    let elements = (wqe.compare as usize).min(2 * stride as usize - 1);
    Receive { id: wqe.id(), index, elements, first: wqe.sge() }
}

/// Element `number` (1 or more) of the list that starts in slot `index` of `ring`.
pub fn element(ring: &Ring, index: u64, number: usize) -> Sge {
    let mut slot = [0; SLOT];
    ring.load(index + 1 + (number as u64 - 1) / 2, &mut slot);
    sges(&slot)[(number - 1) % 2]
}

/// The slots of a receive work request, for the program's side: calls `store` once per slot used.
pub fn write_receive(id: u64, list: &[Sge], mut store: impl FnMut(usize, &[u8; SLOT])) {
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
