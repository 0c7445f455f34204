//! How large a client is, and where things lie in its memory.
//!
//! Each slot of the window has 64 bytes for chains, an object, and a header with a key. The first are 32
//! bytes for the table's slot as a swap found it, 8 for the address of the buffer that was taken, and 24 for
//! the new slot's last three words. The object is on its way out, or as a GET brings it. A PUT or DELETE
//! looks for its key with the last.

use super::object::HEADER;
use super::slot::SLOT;
use crate::heap::Returns;
use crate::kv::{MAX_KEY, MAX_VALUE};
use crate::{QueueNeeds, Registered};

/// How large a client is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Operations in flight at most; 1 to 65534.
    pub window: u32,
    /// Longest key that it will use, in bytes.
    pub max_key: u32,
    /// Longest value that it will use, in bytes.
    pub max_value: u32,
    /// Bytes of a GET's first READ: a longer object takes another.
    pub first_read: u32,
    /// Slots that it remembers.
    pub known: u32,
}

impl Default for ClientConfig {
    fn default() -> ClientConfig {
        ClientConfig { window: 16, max_key: 256, max_value: 4096, first_read: 4096, known: 4096 }
    }
}

/// Slots of the send queue that the longest chain takes: two swaps of five. A PUT takes eight: a WRITE, an
/// ALLOCATE of two, a swap.
const CHAIN: u32 = 10;
/// Bytes of the word in front of the tables.
pub(super) const FRONT_WORD: usize = 8;
/// Bytes before the object in a place of the window.
const FRONT: usize = 64;
/// Offset of the slot that a swap found.
const OLD: usize = 0;
const TAKEN: usize = SLOT;
const NEW: usize = TAKEN + 8;

impl ClientConfig {
    /// What its queue pair must hold; `send` counts 64-byte slots.
    pub fn needs(&self) -> QueueNeeds {
        // A message with returned buffers, and a READ of the word in front.
        let send = self.window * CHAIN + 1 + 2;
        QueueNeeds { send, receive: 1, sges: 1, completions: self.window + 3 }
    }

    /// Bytes of registered memory that it needs; only its own NIC touches it.
    pub fn arena_len(&self) -> usize {
        self.window as usize * self.stride() + FRONT_WORD + Returns::ARENA
    }

    /// Bytes of the longest object.
    pub(super) fn object_len(&self) -> usize {
        HEADER + self.max_key as usize + self.max_value as usize
    }

    pub(super) fn probe_len(&self) -> usize {
        HEADER + self.max_key as usize
    }

    fn stride(&self) -> usize {
        (FRONT + self.object_len() + self.probe_len()).next_multiple_of(64)
    }

    /// Are the numbers possible?
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
    pub fn new(block: Registered, config: ClientConfig) -> Arena {
        Arena { block, config }
    }

    fn place(&self, place: u16) -> usize {
        usize::from(place) * self.config.stride()
    }

    /// Offset of the slot as a swap found it.
    pub fn old(&self, place: u16) -> usize {
        self.place(place) + OLD
    }

    /// Offset of the address of the buffer that was taken.
    pub fn taken(&self, place: u16) -> usize {
        self.place(place) + TAKEN
    }

    /// The new slot's last three words.
    pub fn new_words(&self, place: u16) -> usize {
        self.place(place) + NEW
    }

    /// Offset of an object.
    pub fn object(&self, place: u16) -> usize {
        self.place(place) + FRONT
    }

    /// Offset of a header and a key.
    pub fn probe(&self, place: u16) -> usize {
        self.object(place) + self.config.object_len()
    }

    /// Offset of the word in front of the tables when no operation waits for it.
    pub fn front(&self) -> usize {
        self.config.window as usize * self.config.stride()
    }

    /// Offset of the memory that `Returns` uses.
    pub fn returns(&self) -> usize {
        self.front() + FRONT_WORD
    }
}
