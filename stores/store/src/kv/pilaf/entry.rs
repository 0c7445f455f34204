//! The format of a table entry, 64 bytes.
//!
//! ```text
//!  0  hash       u64  XXH3 of the key
//!  8  address    u64  of the object, in the extents' region; 0: the entry is empty
//! 16  key len    u32
//! 20  value len  u32
//! 24  object crc u64  CRC-64/NVME of key and value
//! 32  version    u64  counts the changes of this entry
//! 40  0          16 bytes
//! 56  entry crc  u64  CRC-64/NVME of bytes 0 to 55
//! ```
//! An object is its key followed by its value, without padding; it begins on a 64-byte line.

use crate::kv::checksum::crc64;
use crate::words::{set_u32, set_u64, u32_at, u64_at};

/// Bytes of an entry.
pub(crate) const ENTRY: usize = 64;
const CRC_AT: usize = 56;

/// The content of an entry.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PilafEntry {
    pub hash: u64,
    pub address: u64,
    pub key_len: u32,
    pub value_len: u32,
    pub object_crc: u64,
    pub version: u64,
}

impl PilafEntry {
    /// Parses an entry. Returns `None` if it is torn.
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Option<PilafEntry> {
        let bytes = bytes.get(..ENTRY)?;
        if crc64(&bytes[..CRC_AT]) != u64_at(bytes, CRC_AT) {
            return None;
        }
        Some(PilafEntry::unverified(bytes))
    }

    /// Parses an entry without its CRC. Only for the server, whose entries do not change during the call.
    pub(crate) fn unverified(bytes: &[u8]) -> PilafEntry {
        PilafEntry {
            hash: u64_at(bytes, 0),
            address: u64_at(bytes, 8),
            key_len: u32_at(bytes, 16),
            value_len: u32_at(bytes, 20),
            object_crc: u64_at(bytes, 24),
            version: u64_at(bytes, 32),
        }
    }

    pub(crate) fn emit(&self) -> [u8; ENTRY] {
        let mut out = [0; ENTRY];
        set_u64(&mut out, 0, self.hash);
        set_u64(&mut out, 8, self.address);
        set_u32(&mut out, 16, self.key_len);
        set_u32(&mut out, 20, self.value_len);
        set_u64(&mut out, 24, self.object_crc);
        set_u64(&mut out, 32, self.version);
        let crc = crc64(&out[..CRC_AT]);
        set_u64(&mut out, CRC_AT, crc);
        out
    }

    /// Returns true if the entry holds a key.
    pub(crate) fn is_taken(&self) -> bool {
        self.address != 0
    }

    /// Returns the length in bytes of the entry's object.
    pub(crate) fn object_len(&self) -> usize {
        self.key_len as usize + self.value_len as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_bytes() {
        let entry = PilafEntry {
            hash: 0x0102_0304_0506_0708,
            address: 0x1000,
            key_len: 4,
            value_len: 5,
            object_crc: 6,
            version: 7,
        };
        let bytes = entry.emit();
        assert_eq!(bytes[..8], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(bytes[8..24], [0, 16, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0]);
        assert_eq!((bytes[24], bytes[32], &bytes[40..56]), (6, 7, &[0; 16][..]));
        assert_eq!(PilafEntry::parse(&bytes), Some(entry));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = PilafEntry { hash: 3, address: 64, ..PilafEntry::default() }.emit();
        for bit in 0..ENTRY * 8 {
            let mut torn = bytes;
            torn[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(PilafEntry::parse(&torn), None, "bit {bit}");
        }
    }
}
