//! The grant of a FaRM shard to a client, sent before the first transaction. The caller chooses how it
//! travels.

use remora_memory::Key;
use remora_nic::Remote;

use super::config::MOST_KEYS;
use super::layout::{ENTRIES, HOLDERS, OBJECTS, log_stride, stride};
use crate::words::{u32_at, u64_at};

/// First word of the message: "FTX2", little-endian.
const MAGIC: u32 = u32::from_le_bytes(*b"FTX2");
const LEN: usize = 72;

/// The location of a shard's table, and the limits of the client.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Address of the index. The key covers the whole memory of the shard.
    pub index: Remote,
    /// Number of index words that hashes select.
    pub homes: u64,
    /// Address of the first object.
    pub objects: u64,
    /// Maximum number of objects.
    pub keys: u64,
    /// Address of the client's log.
    pub log: u64,
    /// Maximum length of key and value together, in bytes.
    pub max_pair: u32,
    /// Maximum number of concurrent transactions; the log has space for this number.
    pub window: u32,
    /// Maximum number of keys per transaction.
    pub max_keys: u32,
    /// The client's number in locks of this shard.
    pub holder: u32,
    /// Maximum distance, in index words, of a key from its home word.
    pub reach: u32,
}

impl Grant {
    /// Encodes the message, little-endian.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(LEN);
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&self.index.rkey.get().to_le_bytes());
        for word in [self.index.addr, self.homes, self.objects, self.keys, self.log] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for word in [self.max_pair, self.window, self.max_keys, self.holder, self.reach, 0] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out
    }

    /// Decodes the message. Returns `None` if it is malformed or inconsistent.
    pub fn decode(bytes: &[u8]) -> Option<Grant> {
        let bytes: &[u8; LEN] = bytes.try_into().ok()?;
        let grant = Grant {
            index: Remote { addr: u64_at(bytes, 8), rkey: Key::new(u32_at(bytes, 4)) },
            homes: u64_at(bytes, 16),
            objects: u64_at(bytes, 24),
            keys: u64_at(bytes, 32),
            log: u64_at(bytes, 40),
            max_pair: u32_at(bytes, 48),
            window: u32_at(bytes, 52),
            max_keys: u32_at(bytes, 56),
            holder: u32_at(bytes, 60),
            reach: u32_at(bytes, 64),
        };
        (grant.is_sound() && u32_at(bytes, 0) == MAGIC).then_some(grant)
    }

    /// Returns the remote address of an index word.
    pub fn index_at(&self, word: u64) -> Remote {
        Remote { addr: self.index.addr + word * 8, ..self.index }
    }

    /// Returns the remote address of the object with this number.
    pub fn object_at(&self, object: u64) -> Remote {
        Remote { addr: self.objects + object * stride(self.max_pair) as u64, ..self.index }
    }

    /// Returns the remote address of an entry of the client's log.
    pub(super) fn log_at(&self, entry: u32) -> Remote {
        Remote { addr: self.log + u64::from(entry) * log_stride(self.max_pair) as u64, ..self.index }
    }

    /// Returns true if the grant is consistent.
    pub(super) fn is_sound(&self) -> bool {
        let entries = u64::from(self.window) * u64::from(self.max_keys);
        (1..1 << 32).contains(&self.homes)
            && (1..=self.homes).contains(&self.reach.into())
            && (1..OBJECTS).contains(&self.keys)
            && (1..=MOST_KEYS).contains(&self.max_keys)
            && (1..HOLDERS).contains(&self.holder)
            && (1..=u64::from(ENTRIES)).contains(&entries)
            && self.max_pair <= 1 << 22
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_as_it_went_and_nothing_else_does() {
        let grant = Grant {
            index: Remote { addr: 0x4000, rkey: Key::new(9) },
            homes: 100,
            objects: 0x9000,
            keys: 60,
            log: 0xa000,
            max_pair: 600,
            window: 16,
            max_keys: 8,
            holder: 3,
            reach: 7,
        };
        let bytes = grant.encode();
        assert_eq!(Grant::decode(&bytes), Some(grant));
        assert!((0..bytes.len()).all(|len| Grant::decode(&bytes[..len]).is_none()));
        for wrong in [
            Grant { holder: 0, ..grant },
            Grant { reach: 101, ..grant },
            Grant { homes: 0, reach: 0, ..grant },
            Grant { keys: 0, ..grant },
            Grant { max_keys: 65, ..grant },
            Grant { window: 1024, ..grant },
            Grant { max_pair: u32::MAX, ..grant },
        ] {
            assert_eq!(Grant::decode(&wrong.encode()), None);
        }
    }
}
