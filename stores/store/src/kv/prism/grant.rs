//! The grant of a PRISM-KV server to a client. The client's [`Hello`](crate::kv::Hello) is the same in all
//! designs.

use remora_nic::Remote;
use serde::{Deserialize, Serialize};

use super::tables::Tables;
use crate::codec::{decode, encode, remote};
use crate::heap::Classes;
use crate::kv::session::SessionError;
use crate::kv::{MAX_KEY, MAX_VALUE};

/// First letters of the message.
const MAGIC: &[u8; 4] = b"RKP4";

/// The layout and limits of a PRISM-KV server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Number of slots of the first table. Each further table has twice as many as the one before.
    pub slots: u64,
    /// Seed of [`hash_key`](crate::kv::hash_key).
    pub hash_seed: u64,
    /// The tables, with the word in front of them. The key is also that of the buffers.
    #[serde(with = "remote")]
    pub table: Remote,
    /// Maximum key length in bytes.
    pub max_key: u32,
    /// Maximum value length in bytes.
    pub max_value: u32,
    /// Maximum number of tables.
    pub tables: u32,
    /// Index of the first table in use. All objects of earlier tables have moved on.
    pub base: u32,
    /// The size classes of the server's buffers.
    pub classes: Classes,
}

impl Grant {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        encode(MAGIC, self)
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// `Malformed`.
    pub fn decode(bytes: &[u8]) -> Result<Grant, SessionError> {
        let lens = |grant: &Grant| grant.max_key as usize <= MAX_KEY && grant.max_value as usize <= MAX_VALUE;
        let grant = decode(MAGIC, bytes).filter(|grant: &Grant| grant.places().is_some() && lens(grant));
        grant.ok_or(SessionError::Malformed)
    }

    /// Returns the layout of the tables, or `None` if the grant is inconsistent.
    pub(super) fn places(&self) -> Option<Tables> {
        Tables::new(self.table.addr, self.slots, self.tables).filter(|_| self.base < self.tables)
    }
}
