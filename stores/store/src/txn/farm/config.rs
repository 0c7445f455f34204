//! How large a client is, and where things lie in its memory.

use super::layout::{ENTRIES, LOG_FRONT, NEAR, WORD, record_len};
use crate::QueueNeeds;

/// Which rules a client keeps.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// The rules of `docs/TXN.md`.
    #[default]
    Proved,
    /// Reads are not validated: for the tests that must detect it.
    ReadsUnchecked,
}

/// How large a client is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Transactions at a time.
    pub window: u32,
    /// Keys that a transaction may read or write; window and keys multiply to 4096 at most.
    pub max_keys: u32,
    /// Longest key, in bytes.
    pub max_key: u32,
    /// Longest value, in bytes.
    pub max_value: u32,
    /// How often it reads a locked key before its transaction aborts.
    pub patience: u32,
    /// Seed of the random pauses.
    pub seed: u64,
    /// The rules that it keeps.
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

/// Work requests of one key that may be in the queue: lock and update, which bring no completion, and the
/// next READ.
const BEHIND: u32 = 3;
/// Keys of a transaction, at most: a shard has a bit for each.
pub const MOST_KEYS: u32 = 64;

/// Bytes for a word that is read again.
const RESULT: usize = 64;

impl ClientConfig {
    /// Are the numbers possible?
    pub(super) fn is_sound(&self) -> bool {
        let small = 1..=ENTRIES;
        small.contains(&self.window)
            && (1..=MOST_KEYS).contains(&self.max_keys)
            && self.window * self.max_keys <= ENTRIES
            && self.max_key as usize <= crate::kv::MAX_KEY
            && self.max_value as usize <= crate::kv::MAX_VALUE
    }

    /// What its queue pair to each shard must hold.
    pub fn needs(&self) -> QueueNeeds {
        let keys = self.window * self.max_keys;
        QueueNeeds { send: keys * BEHIND, receive: keys, sges: 1, completions: keys * 2 + 2 }
    }

    /// Bytes of registered memory that it needs. `max_pair` is the shards' limit of key and value together,
    /// in bytes.
    pub fn arena_len(&self, max_pair: u32) -> usize {
        self.entry_at(self.window * self.max_keys, max_pair)
    }

    /// Offset of a word that is read again. Behind it are the bytes read of the key, and those written to it.
    pub(super) fn entry_at(&self, entry: u32, max_pair: u32) -> usize {
        entry as usize * (RESULT + self.landing_len(max_pair) + self.outgoing_len(max_pair))
    }

    fn landing_len(&self, max_pair: u32) -> usize {
        (WORD + record_len(max_pair)).max(NEAR as usize * 8).next_multiple_of(64)
    }

    fn outgoing_len(&self, max_pair: u32) -> usize {
        (LOG_FRONT + record_len(max_pair)).next_multiple_of(64)
    }

    /// Where words of the index and a key's object are read to.
    pub(super) fn landing_at(&self, entry: u32, max_pair: u32) -> usize {
        self.entry_at(entry, max_pair) + RESULT
    }

    /// Where its log entry is put together.
    pub(super) fn outgoing_at(&self, entry: u32, max_pair: u32) -> usize {
        self.landing_at(entry, max_pair) + self.landing_len(max_pair)
    }
}
