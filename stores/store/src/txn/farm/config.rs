//! The configuration of a FaRM client, and the layout of its memory.

use super::layout::{ENTRIES, LOG_FRONT, NEAR, WORD, record_len};
use crate::QueueNeeds;

/// The rules of a client.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// The rules of `docs/internals/stores/transactions.md`.
    #[default]
    Proved,
    /// Reads are not validated: a fault that tests must detect.
    ReadsUnchecked,
}

/// The configuration of a client.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Maximum number of concurrent transactions.
    pub window: u32,
    /// Maximum number of keys per transaction. The product of window and keys is at most 4096.
    pub max_keys: u32,
    /// Maximum key length in bytes.
    pub max_key: u32,
    /// Maximum value length in bytes.
    pub max_value: u32,
    /// Number of reads of a locked key before its transaction aborts.
    pub patience: u32,
    /// Seed of the random pauses.
    pub seed: u64,
    /// The rules of the client.
    pub rules: Rules,
}

impl Default for ClientConfig {
    fn default() -> ClientConfig {
        ClientConfig {
            window: 16,
            max_keys: 16,
            max_key: 64,
            max_value: 1024,
            patience: 16,
            seed: 1,
            rules: Rules::Proved,
        }
    }
}

/// Maximum number of work requests of one key in the queue: lock and update, which bring no completion, and
/// the next READ.
const BEHIND: u32 = 3;
/// Maximum number of keys per transaction: a shard has one bit for each.
pub(crate) const MOST_KEYS: u32 = 64;

/// Bytes for a word that is read for validation.
const RESULT: usize = 64;

impl ClientConfig {
    /// Returns true if the configuration is valid.
    pub(super) fn is_sound(&self) -> bool {
        let small = 1..=ENTRIES;
        small.contains(&self.window)
            && (1..=MOST_KEYS).contains(&self.max_keys)
            && self.window * self.max_keys <= ENTRIES
            && self.max_key as usize <= crate::kv::MAX_KEY
            && self.max_value as usize <= crate::kv::MAX_VALUE
    }

    /// Returns the sizes that the queue pair to each shard needs.
    pub fn needs(&self) -> QueueNeeds {
        let keys = self.window * self.max_keys;
        QueueNeeds { send: keys * BEHIND, receive: keys, sges: 1, completions: keys * 2 + 2 }
    }

    /// Returns the bytes of registered memory that the client needs. `max_pair` is the shards' maximum
    /// length of key and value together, in bytes.
    pub fn arena_len(&self, max_pair: u32) -> usize {
        self.entry_at(self.window * self.max_keys, max_pair)
    }

    /// Returns the arena offset of a key's validation word. The bytes read of the key, and those written to
    /// it, follow.
    pub(super) fn entry_at(&self, entry: u32, max_pair: u32) -> usize {
        entry as usize * (RESULT + self.landing_len(max_pair) + self.outgoing_len(max_pair))
    }

    fn landing_len(&self, max_pair: u32) -> usize {
        (WORD + record_len(max_pair)).max(NEAR as usize * 8).next_multiple_of(64)
    }

    fn outgoing_len(&self, max_pair: u32) -> usize {
        (LOG_FRONT + record_len(max_pair)).next_multiple_of(64)
    }

    /// Returns the arena offset to which words of the index and a key's object are read.
    pub(super) fn landing_at(&self, entry: u32, max_pair: u32) -> usize {
        self.entry_at(entry, max_pair) + RESULT
    }

    /// Returns the arena offset at which a key's log entry is composed.
    pub(super) fn outgoing_at(&self, entry: u32, max_pair: u32) -> usize {
        self.landing_at(entry, max_pair) + self.landing_len(max_pair)
    }
}
