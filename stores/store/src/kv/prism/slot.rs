//! The 32 bytes of a slot.
//!
//! ```text
//!  0  pointer     u64  to the object; without one, to byte 16 of the slot itself
//!  8  bound       u64  bytes of the object; without one, 16
//! 16  generation  u64  odd: there is an object
//! 24  hash        u64  of the keys that the slot is for; 0: of none yet
//! ```
//! So one bounded READ through the pointer brings either an object or the slot's own last two words; every
//! pointer is valid.
//!
//! The highest bits of a generation say that the slot is on its way into the next table (`docs/PRISM.md`,
//! growth). No slot lives long enough to count to them. Every swap compares the generation. So a swap that
//! began earlier finds that it has changed, and fails.

use remora_nic::prism::Number;

use crate::words::{set_u64, u64_at};

/// Bytes in a slot.
pub const SLOT: usize = 32;
/// Bytes that a READ through a slot without an object brings.
pub(super) const BARE: usize = 16;

/// The slot is no longer used: its object, if any, is in the next table.
pub(super) const MOVED: u64 = 1 << 63;
/// The object may be read and not be changed: it is about to be in the next table.
pub(super) const FROZEN: u64 = 1 << 62;
/// The generation of a slot of the next table that waits for an object. It is even, as in a slot without an
/// object, and no slot counts to it.
pub(super) const RESERVED: u64 = 1 << 61;

/// A slot, as a value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TableSlot {
    /// Where the object is, or where the slot's own generation is.
    pub pointer: u64,
    /// Bytes of the object, or 16.
    pub bound: u64,
    /// Counts deletions and insertions.
    pub generation: u64,
    /// Of the keys that the slot is for.
    pub hash: u64,
}

impl TableSlot {
    /// A slot at `address` that points to no object.
    pub fn bare(address: u64, generation: u64, hash: u64) -> TableSlot {
        TableSlot { pointer: address.wrapping_add(BARE as u64), bound: BARE as u64, generation, hash }
    }

    /// Is it on its way into the next table, or there?
    pub(super) fn is_moving(&self) -> bool {
        self.generation & (MOVED | FROZEN) != 0
    }

    /// As operand of an atomic.
    pub(super) fn number(&self) -> Number {
        [self.pointer, self.bound, self.generation, self.hash]
    }

    /// From its bytes.
    pub(super) fn parse(bytes: &[u8; SLOT]) -> TableSlot {
        let word = |at: usize| u64_at(bytes, at * 8);
        TableSlot { pointer: word(0), bound: word(1), generation: word(2), hash: word(3) }
    }

    /// The slot's bytes, little-endian.
    pub(super) fn emit(&self) -> [u8; SLOT] {
        let mut out = [0; SLOT];
        self.number().iter().enumerate().for_each(|(at, word)| set_u64(&mut out, at * 8, *word));
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
