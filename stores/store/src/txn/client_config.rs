//! The configuration of a PRISM-TX client, and the layout of its memory.

use super::layout::HEADER;
use crate::QueueNeeds;
use crate::heap::Returns;

/// The rules of a client. All but the first are faulty, for tests that must detect the fault.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// The rules of `docs/internals/stores/transactions.md`.
    #[default]
    Proved,
    /// Reads are not validated.
    ReadsUnchecked,
    /// Writes are checked only against PR and PW. An abort makes readable again what its client had read,
    /// whether or not an earlier write is still prepared: the abort of §8.2, taken literally.
    PrintedAbort,
    /// Written keys that were read are first validated as reads. Then TS > PR is required, strictly, as §8.2
    /// prints it.
    PrintedStrict,
}

/// The configuration of a client.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Maximum number of concurrent transactions, 1 to 4096.
    pub window: u32,
    /// Maximum number of keys per transaction, 1 to 4096.
    pub max_keys: u32,
    /// Maximum key length in bytes.
    pub max_key: u32,
    /// Maximum value length in bytes.
    pub max_value: u32,
    /// Number of reads of a pending version before the client resolves it itself.
    pub patience: u32,
    /// True if a transaction that writes one key and reads no other commits in one round trip.
    pub one_step: bool,
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
            one_step: true,
            rules: Rules::Proved,
        }
    }
}

/// Slots of the send queue that the longest work request takes: a compare-and-swap of 32 bytes.
const LONGEST_REQUEST: u32 = 5;
/// Maximum number of work requests per key at the same time.
const CHAIN: u32 = 6;

/// Bytes for the results of a key's or a transaction's operations.
pub(crate) const RESULTS: usize = 64;

impl ClientConfig {
    /// Returns true if the configuration is valid.
    pub(crate) fn is_sound(&self) -> bool {
        let small = 1..=4096;
        small.contains(&self.window)
            && small.contains(&self.max_keys)
            && self.max_key as usize <= crate::kv::MAX_KEY
            && self.max_value as usize <= crate::kv::MAX_VALUE
    }

    /// Returns the sizes that the queue pair to each shard needs; `send` in slots of 64 bytes.
    pub fn needs(&self) -> QueueNeeds {
        let requests = self.window * (self.max_keys * CHAIN + 1) + 1;
        QueueNeeds { send: requests * LONGEST_REQUEST, receive: 1, sges: 1, completions: requests + 2 }
    }

    /// Returns the bytes of registered memory that a client of `shards` shards needs.
    pub fn arena_len(&self, shards: usize) -> usize {
        self.entry_at(self.window * self.max_keys) + shards * Returns::ARENA.next_multiple_of(64)
    }

    /// Returns the maximum number of buffers that may wait to be returned.
    pub(crate) fn most_returns(&self) -> usize {
        (self.window * self.max_keys) as usize * 4 + 64
    }

    /// Returns the length of the longest buffer: a header, a key and its value.
    pub(crate) fn longest(&self) -> usize {
        HEADER + self.max_key as usize + self.max_value as usize
    }

    fn entry_len(&self) -> usize {
        RESULTS + 2 * self.longest().next_multiple_of(64)
    }

    /// Returns the arena offset of a transaction's results.
    pub(crate) fn tx_at(&self, tx: u16) -> usize {
        usize::from(tx) * RESULTS
    }

    /// Returns the arena offset of a key's results.
    pub(crate) fn entry_at(&self, entry: u32) -> usize {
        self.window as usize * RESULTS + entry as usize * self.entry_len()
    }

    /// Returns the arena offset to which a key's versions are read.
    pub(crate) fn landing_at(&self, entry: u32) -> usize {
        self.entry_at(entry) + RESULTS
    }

    /// Returns the arena offset of a key's new version.
    pub(crate) fn outgoing_at(&self, entry: u32) -> usize {
        self.landing_at(entry) + self.longest().next_multiple_of(64)
    }

    /// Returns the arena offset of the messages of a shard's `Returns`.
    pub(crate) fn returns_at(&self, shard: usize) -> usize {
        self.entry_at(self.window * self.max_keys) + shard * Returns::ARENA.next_multiple_of(64)
    }
}
