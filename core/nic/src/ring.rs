//! A queue's memory: one header slot with its indices, then a power of two of 64-byte slots.
//!
//! Program and NIC share it. The program writes slots and then the producer index (release); the NIC reads
//! the index (acquire) and then the slots, and tells by the consumer index which slots are free again.
//! Indices count slots from the queue's creation and never wrap.

use remora_memory::Bytes;
use std::sync::atomic::Ordering;

use crate::wqe::SLOT;

/// Slots of one queue at most.
pub const MAX_RING_SLOTS: u32 = 1 << 20;

/// No program gets further; an index beyond is cut to it, so that counting on from it never overflows.
pub(crate) const FARTHEST: u64 = 1 << 62;

/// Words of the header slot.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// Slots that the producer has filled.
    Produced = 0,
    /// Slots that the consumer has freed.
    Consumed = 8,
    /// Not zero: the queue pair is in error, and posting must tell the NIC, which flushes; or the completion
    /// queue has lost completions.
    Error = 16,
}

/// The memory of one queue.
#[derive(Clone, Debug)]
pub struct Ring {
    bytes: Bytes,
    mask: u64,
}

impl Ring {
    /// Bytes that a ring of `slots` slots takes; `slots` is rounded up to a power of two.
    pub fn size(slots: u32) -> usize {
        SLOT + slots.clamp(1, MAX_RING_SLOTS).next_power_of_two() as usize * SLOT
    }

    /// Lays a ring over `bytes`. None if they do not hold the header and one slot, or are not word-aligned.
    pub fn new(bytes: Bytes) -> Option<Ring> {
        let slots = (bytes.len() / SLOT).checked_sub(1).filter(|slots| *slots > 0)?;
        let slots = 1u64 << slots.ilog2();
        bytes.word(0)?;
        Some(Ring { bytes, mask: slots - 1 })
    }

    /// Its capacity.
    #[inline]
    pub fn slots(&self) -> u64 {
        self.mask + 1
    }

    /// The memory itself.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Position of slot `index` in the memory.
    #[inline]
    pub fn position(&self, index: u64) -> usize {
        SLOT + (index & self.mask) as usize * SLOT
    }

    /// A word of the header, with everything that was written before it.
    #[inline]
    pub fn word(&self, word: Word) -> u64 {
        self.bytes.word(word as usize).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Sets a word of the header, after everything that was written before.
    #[inline]
    pub fn set_word(&self, word: Word, value: u64) {
        if let Some(word) = self.bytes.word(word as usize) {
            word.store(value, Ordering::Release);
        }
    }

    /// What stands in it is consumed round after round, without anybody posting it again.
    pub fn recycle(&self) {
        self.set_word(Word::Produced, FARTHEST);
    }

    /// Copies a slot out.
    #[inline]
    pub fn load(&self, index: u64, out: &mut [u8; SLOT]) {
        let copied = self.bytes.copy64(self.position(index), out);
        debug_assert!(copied.is_ok(), "positions lie inside the ring");
    }

    /// Fills a slot.
    #[inline]
    pub fn store(&self, index: u64, slot: &[u8; SLOT]) {
        let copied = self.bytes.store64(self.position(index), slot);
        debug_assert!(copied.is_ok(), "positions lie inside the ring");
    }

    /// Publishes a slot's last word after the rest of it.
    #[inline]
    pub fn publish(&self, index: u64, last: u64) {
        if let Some(word) = self.bytes.word(self.position(index) + SLOT - 8) {
            word.store(last, Ordering::Release);
        }
    }

    /// Replaces the first word of a slot at once: whoever reads the slot sees the old word or the new one.
    pub(crate) fn set_first(&self, index: u64, first: u64) {
        if let Some(word) = self.bytes.word(self.position(index)) {
            word.store(first, Ordering::Release);
        }
    }

    /// The last word of a slot, before the rest of it.
    #[inline]
    pub fn published(&self, index: u64) -> u64 {
        self.bytes.word(self.position(index) + SLOT - 8).map_or(0, |word| word.load(Ordering::Acquire))
    }
}
