//! Who a shard is, and what it tells every client.

use std::time::{SystemTime, UNIX_EPOCH};

use remora_store::Registered;
use remora_store::txn::{Granted, Hello, Incarnations, Limits, Welcome};

use crate::error::{Result, ensure, need};

/// Which shard.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ShardId {
    /// Its number.
    pub shard: u32,
    /// How many there are.
    pub shards: u32,
}

/// A shard, as clients meet it.
pub struct ShardIdentity {
    id: ShardId,
    limits: Limits,
    run: u64,
    began: u64,
    /// The other shards, as far as clients have told.
    pub incarnations: Incarnations,
}

impl ShardIdentity {
    /// Begins now; the incarnations is at this offset of the shard's memory.
    ///
    /// # Errors
    /// The memory is too small.
    pub fn open(
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
        // The loader's timestamp is 1.
        Ok(ShardIdentity { id, limits, run, began: now.as_micros() as u64 - 2, incarnations })
    }

    /// Which shard it is.
    pub fn id(&self) -> ShardId {
        self.id
    }

    /// This run of it.
    pub fn run(&self) -> u64 {
        self.run
    }

    /// What a client says.
    ///
    /// # Errors
    /// It does not fit.
    pub fn read(&self, hello: &[u8]) -> Result<Hello> {
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

    /// What it is told.
    pub fn welcome(&self, granted: Granted) -> Vec<u8> {
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
