//! The grant of a PRISM-KV server to a client. The client's [`Hello`](crate::kv::Hello) is the same in all
//! designs.
//!
//! ```text
//!  0  "RKP3"
//!  4  slots of the first table      u64
//! 12  hash seed                     u64
//! 20  address of the tables         u64
//! 28  key of tables and buffers     u32
//! 32  longest key, longest value    u32 each
//! 40  maximum number of tables      u32
//! 44  the first table in use        u32
//! 48  the size classes              as `Classes::encode` writes them
//! ```
//! All numbers are little-endian.

use remora_memory::Key;
use remora_nic::Remote;

use super::tables::Tables;
use crate::heap::Classes;
use crate::kv::session::SessionError;
use crate::kv::{MAX_KEY, MAX_VALUE};
use crate::words::{set_u32, set_u64, u32_at, u64_at};

const MAGIC: u32 = u32::from_le_bytes(*b"RKP3");
const HEAD: usize = 48;

/// The layout and limits of a PRISM-KV server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Number of slots of the first table. Each further table has twice as many as the one before.
    pub slots: u64,
    /// Seed of [`hash_key`](crate::kv::hash_key).
    pub hash_seed: u64,
    /// The tables, with the word in front of them. The key is also that of the buffers.
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
    /// Encodes the message, little-endian.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; HEAD];
        set_u32(&mut out, 0, MAGIC);
        set_u64(&mut out, 4, self.slots);
        set_u64(&mut out, 12, self.hash_seed);
        set_u64(&mut out, 20, self.table.addr);
        set_u32(&mut out, 28, self.table.rkey.get());
        set_u32(&mut out, 32, self.max_key);
        set_u32(&mut out, 36, self.max_value);
        set_u32(&mut out, 40, self.tables);
        set_u32(&mut out, 44, self.base);
        self.classes.encode(&mut out);
        out
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// `Malformed`.
    pub fn decode(bytes: &[u8]) -> Result<Grant, SessionError> {
        let head = bytes.get(..HEAD).filter(|head| u32_at(head, 0) == MAGIC);
        let head = head.ok_or(SessionError::Malformed)?;
        let classes = Classes::decode(&bytes[HEAD..]).ok_or(SessionError::Malformed)?;
        let grant = Grant {
            slots: u64_at(head, 4),
            hash_seed: u64_at(head, 12),
            table: Remote { addr: u64_at(head, 20), rkey: Key::new(u32_at(head, 28)) },
            max_key: u32_at(head, 32),
            max_value: u32_at(head, 36),
            tables: u32_at(head, 40),
            base: u32_at(head, 44),
            classes,
        };
        let lens = grant.max_key as usize <= MAX_KEY && grant.max_value as usize <= MAX_VALUE;
        (grant.places().is_some() && lens).then_some(grant).ok_or(SessionError::Malformed)
    }

    /// Returns the layout of the tables, or `None` if the grant is inconsistent.
    pub(super) fn places(&self) -> Option<Tables> {
        Tables::new(self.table.addr, self.slots, self.tables).filter(|_| self.base < self.tables)
    }
}
