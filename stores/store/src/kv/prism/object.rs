//! The result of a READ through a slot: an object, or the slot's own words.
//!
//! ```text
//! object, in a buffer
//!  0  generation  u64  the slot's, odd
//!  8  hash        u64  of the key
//! 16  key len     u32
//! 20  value len   u32
//! 24  key, value
//! ```
//! There is no checksum. An object is written before its address is in the slot, and never after. The
//! server's NIC does not reuse a buffer while it is being read.

use super::slot::{BARE, MOVED};
use crate::kv::hash::hash_key;
use crate::words::{set_u32, set_u64, u32_at, u64_at};

/// Bytes before the key of an object.
pub const HEADER: usize = 24;

/// Returns the hash that binds a slot to a key: never 0.
#[inline]
pub(super) fn binding(seed: u64, key: &[u8]) -> u64 {
    hash_key(seed, key).max(1)
}

/// Returns the header of an object.
pub(super) fn header(generation: u64, hash: u64, key_len: usize, value_len: usize) -> [u8; HEADER] {
    let mut out = [0; HEADER];
    set_u64(&mut out, 0, generation);
    set_u64(&mut out, 8, hash);
    set_u32(&mut out, 16, key_len as u32);
    set_u32(&mut out, 20, value_len as u32);
    out
}

/// The content of a slot, for a client that looks for a key.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum SlotContent {
    /// The slot was never used, so no later slot holds the key.
    Free,
    /// The slot is bound to this key but holds no object.
    Gone {
        /// Generation of the slot, even.
        generation: u64,
    },
    /// The slot holds the key's object.
    Mine {
        /// Generation of the slot, odd.
        generation: u64,
        /// Length of the object in bytes.
        len: u64,
    },
    /// The slot is bound to this hash, but holds another key.
    Twin,
    /// The slot is bound to another hash.
    Other,
    /// The slot was bound to this hash, or never used, and is marked as moved. The key is in the next table,
    /// or absent.
    Moved,
}

/// Interprets the bytes of a READ. Returns `None` if no slot points to such bytes.
#[inline]
pub(super) fn see(landed: &[u8], hash: u64, key: &[u8]) -> Option<SlotContent> {
    if landed.len() < BARE {
        return None;
    }
    let generation = u64_at(landed, 0);
    let bound_to = u64_at(landed, 8);
    if landed.len() == BARE {
        return (generation & 1 == 0).then_some(match bound_to {
            _ if bound_to != hash && bound_to != 0 => SlotContent::Other,
            _ if generation & MOVED != 0 => SlotContent::Moved,
            0 => SlotContent::Free,
            _ => SlotContent::Gone { generation },
        });
    }
    if landed.len() < HEADER || generation & 1 == 0 {
        return None;
    }
    if bound_to != hash {
        return Some(SlotContent::Other);
    }
    let key_len = u32_at(landed, 16);
    let value_len = u32_at(landed, 20);
    if key_len as usize != key.len() {
        return Some(SlotContent::Twin);
    }
    let same = landed.get(HEADER..HEADER + key.len())? == key;
    let len = HEADER as u64 + u64::from(key_len) + u64::from(value_len);
    Some(if same { SlotContent::Mine { generation, len } } else { SlotContent::Twin })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(generation: u64, hash: u64, key: &[u8], value: &[u8]) -> Vec<u8> {
        [&header(generation, hash, key.len(), value.len())[..], key, value].concat()
    }

    #[test]
    fn literal_bytes() {
        let bytes = object(3, 0x0102, b"key", b"value");
        assert_eq!(bytes[..16], [3, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[16..24], [3, 0, 0, 0, 5, 0, 0, 0]);
        assert_eq!(&bytes[24..], b"keyvalue");
    }

    #[test]
    fn each_thing_that_a_slot_may_lead_to() {
        let bare = |generation: u64, hash: u64| [generation.to_le_bytes(), hash.to_le_bytes()].concat();
        let mine = Some(SlotContent::Mine { generation: 5, len: 24 + 3 + 5 });
        let whole = object(5, 7, b"key", b"value");
        assert_eq!(see(&whole, 7, b"key"), mine);
        assert_eq!(see(&whole[..27], 7, b"key"), mine, "only as far as the key");
        assert_eq!(see(&whole[..26], 7, b"key"), None, "not even that far");
        assert_eq!(see(&whole, 8, b"key"), Some(SlotContent::Other));
        assert_eq!(see(&whole, 7, b"kez"), Some(SlotContent::Twin));
        assert_eq!(see(&whole, 7, b"keys"), Some(SlotContent::Twin));
        assert_eq!(see(&bare(0, 0), 7, b"key"), Some(SlotContent::Free));
        assert_eq!(see(&bare(6, 7), 7, b"key"), Some(SlotContent::Gone { generation: 6 }));
        assert_eq!(see(&bare(6, 8), 7, b"key"), Some(SlotContent::Other));
        assert_eq!(see(&bare(MOVED, 7), 7, b"key"), Some(SlotContent::Moved));
        assert_eq!(see(&bare(MOVED, 0), 7, b"key"), Some(SlotContent::Moved), "nobody will ever use it");
        assert_eq!(see(&bare(MOVED, 8), 7, b"key"), Some(SlotContent::Other), "the key may be behind it");
        assert_eq!(see(&bare(5, 7), 7, b"key"), None, "odd, and no object");
        assert_eq!(see(&object(4, 7, b"key", b""), 7, b"key"), None, "even, and an object");
        assert_eq!((see(&[], 7, b""), see(&[1; 15], 7, b""), see(&[1; 23], 7, b"")), (None, None, None));
    }
}
