//! How large a client is, and where things lie in its memory.

use super::layout::HEADER;
use crate::QueueNeeds;
use crate::heap::Returns;

/// Which rules a client keeps. All but the first are broken, and there for the tests that must find it out.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// Those of `docs/TXN.md`.
    #[default]
    Proved,
    /// What was read is not validated.
    ReadsUnchecked,
    /// Writes are checked against PR and PW alone, and what an abort makes readable again is what its client
    /// had read, whether or not an earlier write is still prepared: §8.2's abort, carried over.
    PrintedAbort,
    /// Written keys that were read are validated as reads first, and then TS > PR is asked for, strictly, as
    /// §8.2 prints it.
    PrintedStrict,
}

/// How large a client is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Transactions at a time, 1 to 4096.
    pub window: u32,
    /// Keys that a transaction may read or write, 1 to 4096.
    pub max_keys: u32,
    /// Longest key, in bytes.
    pub max_key: u32,
    /// Longest value, in bytes.
    pub max_value: u32,
    /// So often it looks at a pending version before it puts the key in order itself.
    pub patience: u32,
    /// A transaction that writes one key and reads no other commits in one round trip.
    pub one_step: bool,
    /// Its rules.
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

/// Slots of the send queue that its longest work request takes: a compare-and-swap of 32 bytes.
const LONGEST_REQUEST: u32 = 5;
/// Work requests of one key at a time, at most.
const CHAIN: u32 = 6;

/// Bytes for results: of a key's operations, or of a transaction's.
pub const RESULTS: usize = 64;

impl ClientConfig {
    /// Are the numbers possible?
    pub(crate) fn is_sound(&self) -> bool {
        let small = 1..=4096;
        small.contains(&self.window)
            && small.contains(&self.max_keys)
            && self.max_key as usize <= crate::kv::MAX_KEY
            && self.max_value as usize <= crate::kv::MAX_VALUE
    }

    /// What its queue pair to each shard must hold; `send` in slots of 64 bytes.
    pub fn needs(&self) -> QueueNeeds {
        let requests = self.window * (self.max_keys * CHAIN + 1) + 1;
        QueueNeeds { send: requests * LONGEST_REQUEST, receive: 1, sges: 1, completions: requests + 2 }
    }

    /// Bytes of registered memory that it needs to work with so many shards.
    pub fn arena_len(&self, shards: usize) -> usize {
        self.entry_at(self.window * self.max_keys) + shards * Returns::ARENA.next_multiple_of(64)
    }

    /// Buffers that may wait to be returned.
    pub(crate) fn most_returns(&self) -> usize {
        (self.window * self.max_keys) as usize * 4 + 64
    }

    /// Bytes of the longest buffer: a key with its value.
    pub(crate) fn longest(&self) -> usize {
        HEADER + self.max_key as usize + self.max_value as usize
    }

    fn entry_len(&self) -> usize {
        RESULTS + 2 * self.longest().next_multiple_of(64)
    }

    /// Where the results of a transaction are.
    pub(crate) fn tx_at(&self, tx: u16) -> usize {
        usize::from(tx) * RESULTS
    }

    /// Where the results of a key are.
    pub(crate) fn entry_at(&self, entry: u32) -> usize {
        self.window as usize * RESULTS + entry as usize * self.entry_len()
    }

    /// Where what is read of a key comes to.
    pub(crate) fn landing_at(&self, entry: u32) -> usize {
        self.entry_at(entry) + RESULTS
    }

    /// Where what is written to it waits.
    pub(crate) fn outgoing_at(&self, entry: u32) -> usize {
        self.landing_at(entry) + self.longest().next_multiple_of(64)
    }

    /// Where the messages of a shard's returns are.
    pub(crate) fn returns_at(&self, shard: usize) -> usize {
        self.entry_at(self.window * self.max_keys) + shard * Returns::ARENA.next_multiple_of(64)
    }
}
