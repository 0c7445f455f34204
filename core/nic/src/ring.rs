//! The memory of a queue: one header slot with the indices, then a power of two of 64-byte slots.
//!
//! The program and the NIC share this memory. The program writes slots and then the producer index (release);
//! the NIC reads the index (acquire), then the slots, and frees slots by the consumer index. Indices count
//! slots since the creation of the queue and never wrap.

use remora_memory::{Bytes, Error};
use std::sync::atomic::Ordering;

use crate::wqe::SLOT;

/// Maximum number of slots of a queue.
pub const MAX_RING_SLOTS: u32 = 1 << 20;

/// Upper limit of an index. Larger values from a program are reduced to it, so that additions do not
/// overflow.
pub(crate) const FARTHEST: u64 = 1 << 62;

/// A word of the header slot.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// Producer index: the number of slots filled.
    Produced = 0,
    /// Consumer index: the number of slots freed.
    Consumed = 8,
    /// Error word, normally 0. On a work queue, a nonzero value makes the program ring a doorbell after each
    /// post, so that the NIC flushes the request. On a completion queue, it means that completions were lost.
    Error = 16,
}

/// The memory of one queue.
#[derive(Clone, Debug)]
pub struct Ring {
    bytes: Bytes,
    mask: u64,
}

impl Ring {
    /// Returns the size in bytes of a ring of `slots` slots, rounded up to a power of two.
    pub fn size(slots: u32) -> usize {
        SLOT + slots.clamp(1, MAX_RING_SLOTS).next_power_of_two() as usize * SLOT
    }

    /// Creates a ring over `bytes`. `None` if the memory is too small for the header and one slot, or not
    /// word-aligned.
    pub fn new(bytes: Bytes) -> Option<Ring> {
        let slots = (bytes.len() / SLOT).checked_sub(1).filter(|slots| *slots > 0)?;
        let slots = 1u64 << slots.ilog2();
        bytes.word(0)?;
        Some(Ring { bytes, mask: slots - 1 })
    }

    /// Creates a ring of at least `slots` slots in memory of this process.
    ///
    /// # Errors
    /// The error of [`Bytes::heap`].
    pub fn heap(slots: u32) -> Result<Ring, Error> {
        let bytes = Bytes::heap(Ring::size(slots))?;
        Ring::new(bytes).ok_or(Error::Invalid)
    }

    /// Returns the number of slots.
    #[inline]
    pub fn slots(&self) -> u64 {
        self.mask + 1
    }

    /// Returns the memory.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the byte offset of slot `index`.
    #[inline]
    pub fn position(&self, index: u64) -> usize {
        SLOT + (index & self.mask) as usize * SLOT
    }

    /// Reads a word of the header (acquire).
    #[inline]
    pub fn word(&self, word: Word) -> u64 {
        self.bytes.word(word as usize).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Writes a word of the header (release).
    #[inline]
    pub fn set_word(&self, word: Word, value: u64) {
        if let Some(word) = self.bytes.word(word as usize) {
            word.store(value, Ordering::Release);
        }
    }

    /// Makes the ring recycled: its slots are consumed in every round without being posted again.
    pub fn recycle(&self) {
        self.set_word(Word::Produced, FARTHEST);
    }

    /// Copies a slot from the ring.
    #[inline]
    pub fn load(&self, index: u64, out: &mut [u8; SLOT]) {
        let copied = self.bytes.copy64(self.position(index), out);
        debug_assert!(copied.is_ok(), "positions lie inside the ring");
    }

    /// Copies a slot from the ring as eight words.
    #[inline]
    pub fn words(&self, index: u64) -> [u64; 8] {
        let mut slot = [0; SLOT];
        self.load(index, &mut slot);
        let mut words = [0; 8];
        for (word, chunk) in words.iter_mut().zip(slot.chunks_exact(8)) {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(chunk);
            *word = u64::from_le_bytes(bytes);
        }
        words
    }

    /// Copies a slot into the ring.
    #[inline]
    pub fn store(&self, index: u64, slot: &[u8; SLOT]) {
        let copied = self.bytes.store64(self.position(index), slot);
        debug_assert!(copied.is_ok(), "positions lie inside the ring");
    }

    /// Writes the last word of a slot (release), after the rest of the slot.
    #[inline]
    pub fn publish(&self, index: u64, last: u64) {
        if let Some(word) = self.bytes.word(self.position(index) + SLOT - 8) {
            word.store(last, Ordering::Release);
        }
    }

    /// Replaces the first word of a slot atomically.
    pub(crate) fn set_first(&self, index: u64, first: u64) {
        if let Some(word) = self.bytes.word(self.position(index)) {
            word.store(first, Ordering::Release);
        }
    }

    /// Reads the last word of a slot (acquire), before the rest of the slot.
    #[inline]
    pub fn published(&self, index: u64) -> u64 {
        self.bytes.word(self.position(index) + SLOT - 8).map_or(0, |word| word.load(Ordering::Acquire))
    }
}
