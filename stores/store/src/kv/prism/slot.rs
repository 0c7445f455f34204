//! The format of a slot, 32 bytes.
//!
//! ```text
//!  0  pointer     u64  to the object; without one, to byte 16 of the slot itself
//!  8  bound       u64  bytes of the object; without one, 16
//! 16  generation  u64  odd: there is an object
//! 24  hash        u64  of the keys that the slot is bound to; 0: not bound yet
//! ```
//! So one bounded READ through the pointer returns either an object or the slot's own last two words; every
//! pointer is valid.
//!
//! The highest bits of a generation say that the slot is moving to the next table
//! (`docs/reference/prism.md`, growth).
//! No generation counts up to these bits. Every CAS compares the generation, so a CAS that began earlier
//! finds that the generation has changed, and fails.

use remora_nic::prism::Number;

use crate::words::{set_u64, u64_at};

/// Bytes of a slot.
pub const SLOT: usize = 32;
/// Bytes that a READ through a slot without an object returns.
pub(super) const BARE: usize = 16;

/// Bit of the generation: the slot is no longer used. Its object, if any, is in the next table.
pub(super) const MOVED: u64 = 1 << 63;
/// Bit of the generation: the object may be read but not changed, because it is about to move to the next
/// table.
pub(super) const FROZEN: u64 = 1 << 62;
/// The generation of a slot of the next table that is reserved for an object. It is even, as in a slot
/// without an object, and no generation counts up to it.
pub(super) const RESERVED: u64 = 1 << 61;

/// The content of a slot.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TableSlot {
    /// Address of the object, or of the slot's own generation.
    pub pointer: u64,
    /// Length of the object in bytes, or 16.
    pub bound: u64,
    /// Number of deletions and insertions.
    pub generation: u64,
    /// Hash of the keys that the slot is bound to.
    pub hash: u64,
}

impl TableSlot {
    /// Returns a slot at `address` that points to no object.
    pub fn bare(address: u64, generation: u64, hash: u64) -> TableSlot {
        TableSlot { pointer: address.wrapping_add(BARE as u64), bound: BARE as u64, generation, hash }
    }

    /// Returns true if the slot is moving to the next table, or has moved.
    pub(super) fn is_moving(&self) -> bool {
        self.generation & (MOVED | FROZEN) != 0
    }

    /// Returns the slot as the operand of an atomic operation.
    pub(super) fn number(&self) -> Number {
        [self.pointer, self.bound, self.generation, self.hash]
    }

    /// Parses a slot.
    pub(super) fn parse(bytes: &[u8; SLOT]) -> TableSlot {
        let word = |index: usize| u64_at(bytes, index * 8);
        TableSlot { pointer: word(0), bound: word(1), generation: word(2), hash: word(3) }
    }

    /// Encodes the slot, little-endian.
    pub(super) fn emit(&self) -> [u8; SLOT] {
        let mut out = [0; SLOT];
        self.number().iter().enumerate().for_each(|(index, word)| set_u64(&mut out, index * 8, *word));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_slot_leads_to_its_own_generation() {
        let words = TableSlot::bare(0x1000, 4, 9);
        let bytes = words.emit();
        assert_eq!(bytes[..16], [0x10, 0x10, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[16..], [4, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(TableSlot::parse(&bytes), words);
    }
}
