//! The identity of a shard, and the welcome that it sends to every client.

use std::time::{SystemTime, UNIX_EPOCH};

use remora_store::Registered;
use remora_store::txn::{Granted, Hello, Incarnations, Limits, Welcome};

use crate::error::{Result, ensure, need};

/// The number of a shard in its store.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ShardId {
    /// Number of the shard, from 0.
    pub shard: u32,
    /// Number of shards of the store.
    pub shards: u32,
}

/// A shard's identity and state, as clients see them.
pub(crate) struct ShardIdentity {
    id: ShardId,
    limits: Limits,
    run: u64,
    began: u64,
    /// The incarnations of the other shards, as clients have reported them.
    pub incarnations: Incarnations,
}

impl ShardIdentity {
    /// Creates the identity of a shard that begins now. Its incarnations are at this offset of its memory.
    ///
    /// # Errors
    /// The memory is too small.
    pub(crate) fn open(
        id: ShardId,
        limits: Limits,
        memory: Registered,
        incarnations_at: usize,
    ) -> Result<ShardIdentity> {
        let incarnations = need!(
            Incarnations::new(memory, incarnations_at, id.shards),
            Config,
            "memory for the incarnations"
        );
        let run = crate::seed::fresh().max(1);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok();
        let now = need!(now, Config, "the clock stands before 1970");
        // The loader uses timestamp 1, so the clock starts at 2.
        Ok(ShardIdentity { id, limits, run, began: now.as_micros() as u64 - 2, incarnations })
    }

    /// Returns the number of the shard in its store.
    pub(crate) fn id(&self) -> ShardId {
        self.id
    }

    /// Returns the number of the shard's run.
    pub(crate) fn run(&self) -> u64 {
        self.run
    }

    /// Decodes and checks a client's message.
    ///
    /// # Errors
    /// The client does not fit this shard.
    pub(crate) fn read(&self, hello: &[u8]) -> Result<Hello> {
        let hello = Hello::decode(hello);
        let hello = need!(hello, Peer, "this is a shard of transactions, and the client is none of it");
        let ShardId { shard, shards } = self.id;
        ensure!(
            (hello.shard, hello.shards) == (shard, shards),
            Config,
            "this is shard {shard} of {shards}, and the client takes it for shard {} of {}: name all shards, in the order of their numbers",
            hello.shard,
            hello.shards
        );
        Ok(hello)
    }

    /// Returns the encoded answer to a client.
    pub(crate) fn welcome(&self, granted: Granted) -> Vec<u8> {
        let ShardIdentity { limits, run, began, .. } = *self;
        let welcome = Welcome {
            shard: self.id.shard,
            run,
            began,
            incarnations: self.incarnations.address(),
            limits,
            granted,
        };
        welcome.encode()
    }
}
