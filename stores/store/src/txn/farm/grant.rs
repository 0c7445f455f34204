//! The grant of a FaRM shard to a client, sent before the first transaction. The caller chooses how it
//! travels.

use remora_nic::Remote;
use serde::{Deserialize, Serialize};

use super::config::MOST_KEYS;
use super::layout::{ENTRIES, HOLDERS, OBJECTS, log_stride, stride};
use crate::codec::{decode, encode, remote};

/// First letters of the message.
const MAGIC: &[u8; 4] = b"FTX3";

/// The location of a shard's table, and the limits of the client.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Address of the index. The key covers the whole memory of the shard.
    #[serde(with = "remote")]
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
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        encode(MAGIC, self)
    }

    /// Decodes the message. Returns `None` if it is malformed or inconsistent.
    pub fn decode(bytes: &[u8]) -> Option<Grant> {
        decode(MAGIC, bytes).filter(Grant::is_sound)
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
    pub(in crate::txn) fn is_sound(&self) -> bool {
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
    use remora_memory::Key;

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
