//! The size of a shard.

use remora_store::txn::Limits;

use super::identity::ShardId;

/// Maximum number of shards of a store.
pub const MOST_SHARDS: usize = 16;

/// The size of a shard.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ShardConfig {
    /// The number of the shard in its store.
    pub id: ShardId,
    /// Maximum number of keys, including deleted ones.
    pub keys: u64,
    /// Number of slots of the table.
    pub slots: u64,
    /// The limits for clients.
    pub limits: Limits,
    /// Maximum number of clients at the same time.
    pub clients: u32,
}

impl ShardConfig {
    /// Returns the configuration of the only shard of a store with `keys` keys of up to 64 bytes and values
    /// of up to 1024 bytes.
    pub fn of_keys(keys: u64) -> ShardConfig {
        ShardConfig {
            id: ShardId { shard: 0, shards: 1 },
            keys,
            slots: keys * 2,
            limits: Limits { max_key: 64, max_value: 1024, max_keys: 16, window: 16 },
            clients: 64,
        }
    }

    /// Returns the maximum number of connections of other shards, which ask about clients that have died:
    /// one per shard, and one that has failed but is not removed yet.
    pub fn asking(&self) -> u32 {
        self.id.shards * 2
    }

    /// Returns the maximum number of connections.
    pub fn connections(&self) -> u32 {
        self.clients + self.asking()
    }
}
