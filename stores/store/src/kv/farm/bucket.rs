//! The payload of a bucket: three slots, a chain and two joints.
//!
//! ```text
//! bucket (a whole line)                     slot
//!  0  version     u32                        0  line     u32  of the object, in 64-byte lines
//!  4  joint left  u32                        4  lines    u16  that the object takes; 0: empty
//!  8  slot 0      12 bytes                   6  tag      u16  low bits of the key's hash
//! 20  slot 1                                 8  version  u32  in every line of the object
//! 32  slot 2
//! 44  chain       u32  block, from 1; 0: none
//! 48  joint right u32
//! 52  0           8 bytes
//! 60  version     u32
//! ```
//! A bucket's *right joint* and its right neighbour's *left joint* are equal. Both count up when a key hops
//! from one to the other. A reader that finds them different may have missed a key on its way (the paper's
//! joint versions). A chained block has the same form; its joints are unused.

use super::line::PAYLOAD;
use crate::words::{set_u16, set_u32, u16_at, u32_at};

/// Slots in a bucket: H/2.
pub(crate) const SLOTS: usize = 3;

/// Maximum number of blocks chained to one bucket. Each block costs its keys another round trip.
pub(crate) const CHAIN_MOST: usize = 4;

/// A slot of a bucket: the location of one key's object.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FarmSlot {
    pub line: u32,
    pub lines: u16,
    pub tag: u16,
    pub version: u32,
}

impl FarmSlot {
    /// Returns true if the slot holds a key.
    pub(crate) fn is_taken(&self) -> bool {
        self.lines != 0
    }
}

/// The content of a bucket, without its version.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub left: u32,
    pub slots: [FarmSlot; SLOTS],
    pub chain: u32,
    pub right: u32,
}

/// Offset of the slots in the payload.
const SLOTS_AT: usize = 4;
const SLOT: usize = 12;
const CHAIN_AT: usize = SLOTS_AT + SLOTS * SLOT;
const RIGHT_AT: usize = CHAIN_AT + 4;

impl Bucket {
    /// Parses a bucket from the payload of a line.
    #[inline]
    pub(crate) fn parse(payload: &[u8]) -> Bucket {
        let slot = |index| {
            let offset = SLOTS_AT + index * SLOT;
            FarmSlot {
                line: u32_at(payload, offset),
                lines: u16_at(payload, offset + 4),
                tag: u16_at(payload, offset + 6),
                version: u32_at(payload, offset + 8),
            }
        };
        Bucket {
            left: u32_at(payload, 0),
            slots: core::array::from_fn(slot),
            chain: u32_at(payload, CHAIN_AT),
            right: u32_at(payload, RIGHT_AT),
        }
    }

    pub(crate) fn emit(&self) -> [u8; PAYLOAD] {
        let mut out = [0; PAYLOAD];
        set_u32(&mut out, 0, self.left);
        for (index, slot) in self.slots.iter().enumerate() {
            let offset = SLOTS_AT + index * SLOT;
            set_u32(&mut out, offset, slot.line);
            set_u16(&mut out, offset + 4, slot.lines);
            set_u16(&mut out, offset + 6, slot.tag);
            set_u32(&mut out, offset + 8, slot.version);
        }
        set_u32(&mut out, CHAIN_AT, self.chain);
        set_u32(&mut out, RIGHT_AT, self.right);
        out
    }
}

/// Returns the home bucket of a hash among `buckets` buckets.
#[inline]
pub(crate) fn home(hash: u64, buckets: u64) -> u64 {
    crate::kv::hash::reduce(hash, buckets)
}

/// Returns the tag of a hash: its low bits. The home bucket depends on the high bits.
#[inline]
pub(crate) fn tag(hash: u64) -> u16 {
    hash as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_bytes() {
        let slot = FarmSlot { line: 0x0403_0201, lines: 0x0605, tag: 0x0807, version: 0x0c0b_0a09 };
        let bucket =
            Bucket { left: 0xa1, slots: [slot, FarmSlot::default(), slot], chain: 0xb2, right: 0xc3 };
        let bytes = bucket.emit();
        assert_eq!(bytes[..16], [0xa1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(bytes[28..48], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0xb2, 0, 0, 0, 0xc3, 0, 0, 0]);
        assert_eq!(Bucket::parse(&bytes), bucket);
    }
}
