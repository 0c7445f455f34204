//! The configuration of a PRISM-KV client, and the layout of its memory.
//!
//! Each place of the window has 64 bytes for chains, an object, and a header with a key. The 64 bytes are
//! the slot that a CAS returned (32 bytes), the address of the allocated buffer (8) and the last three words
//! of the new slot (24). The object is the one to be stored, or the one that a GET reads. A PUT or DELETE
//! finds its slot by reading a header and a key.

use super::object::HEADER;
use super::slot::SLOT;
use crate::heap::Returns;
use crate::kv::{MAX_KEY, MAX_VALUE};
use crate::{QueueNeeds, Registered};

/// The configuration of a client.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Maximum number of operations in flight: 1 to 65534.
    pub window: u32,
    /// Maximum key length in bytes.
    pub max_key: u32,
    /// Maximum value length in bytes.
    pub max_value: u32,
    /// Bytes of a GET's first READ. A longer object takes a second READ.
    pub first_read: u32,
    /// Number of slots that the client remembers.
    pub known: u32,
}

impl Default for ClientConfig {
    fn default() -> ClientConfig {
        ClientConfig { window: 16, max_key: 256, max_value: 4096, first_read: 4096, known: 4096 }
    }
}

/// Slots of the send queue that the longest chain takes: two CASes of five. A PUT takes eight: one for a
/// WRITE, two for an ALLOCATE, five for a CAS.
const CHAIN: u32 = 10;
/// Bytes of the word in front of the tables.
pub(super) const FRONT_WORD: usize = 8;
/// Bytes before the object in a place of the window.
const FRONT: usize = 64;
/// Offset of the slot that a CAS returned.
const OLD: usize = 0;
const TAKEN: usize = SLOT;
const NEW: usize = TAKEN + 8;

impl ClientConfig {
    /// Returns the sizes that the client's queue pair needs; `send` counts 64-byte slots.
    pub fn needs(&self) -> QueueNeeds {
        // The additional slots are for a message with returned buffers (1), and a READ of the word in front
        // of the tables (2).
        let send = self.window * CHAIN + 1 + 2;
        QueueNeeds { send, receive: 1, sges: 1, completions: self.window + 3 }
    }

    /// Returns the bytes of registered memory that the client needs. Only the client's own NIC accesses
    /// them.
    pub fn arena_len(&self) -> usize {
        self.window as usize * self.stride() + FRONT_WORD + Returns::ARENA
    }

    /// Returns the maximum length of an object in bytes.
    pub(super) fn object_len(&self) -> usize {
        HEADER + self.max_key as usize + self.max_value as usize
    }

    pub(super) fn probe_len(&self) -> usize {
        HEADER + self.max_key as usize
    }

    fn stride(&self) -> usize {
        (FRONT + self.object_len() + self.probe_len()).next_multiple_of(64)
    }

    /// Returns true if the configuration is valid.
    pub(super) fn is_sound(&self) -> bool {
        (1..0xffff).contains(&self.window)
            && self.max_key as usize <= MAX_KEY
            && self.max_value as usize <= MAX_VALUE
    }
}

/// A client's memory.
#[derive(Debug)]
pub(super) struct Arena {
    pub block: Registered,
    config: ClientConfig,
}

impl Arena {
    pub(crate) fn new(block: Registered, config: ClientConfig) -> Arena {
        Arena { block, config }
    }

    fn place(&self, place: u16) -> usize {
        usize::from(place) * self.config.stride()
    }

    /// Returns the offset of the slot that a CAS returned.
    pub(crate) fn old(&self, place: u16) -> usize {
        self.place(place) + OLD
    }

    /// Returns the offset of the address of the allocated buffer.
    pub(crate) fn taken(&self, place: u16) -> usize {
        self.place(place) + TAKEN
    }

    /// Returns the offset of the new slot's last three words.
    pub(crate) fn new_words(&self, place: u16) -> usize {
        self.place(place) + NEW
    }

    /// Returns the offset of an object.
    pub(crate) fn object(&self, place: u16) -> usize {
        self.place(place) + FRONT
    }

    /// Returns the offset of a header and a key.
    pub(crate) fn probe(&self, place: u16) -> usize {
        self.object(place) + self.config.object_len()
    }

    /// Returns the offset of the word in front of the tables, for READs that belong to no operation.
    pub(crate) fn front(&self) -> usize {
        self.config.window as usize * self.config.stride()
    }

    /// Returns the offset of the memory that `Returns` uses.
    pub(crate) fn returns(&self) -> usize {
        self.front() + FRONT_WORD
    }
}
