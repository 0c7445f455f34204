//! Who a shard is, and what it tells every client.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use remora_store::Registered;
use remora_store::txn::{Granted, Hello, Incarnations, Limits, Welcome};

/// Which shard.
#[derive(Copy, Clone, Debug)]
pub struct Place {
    /// Its number.
    pub shard: u32,
    /// How many there are.
    pub shards: u32,
}

/// A shard, as clients meet it.
pub struct Desk {
    place: Place,
    limits: Limits,
    run: u64,
    began: u64,
    /// The other shards, as far as clients have told.
    pub incarnations: Incarnations,
}

impl Desk {
    /// Begins now; the incarnations is at this offset of the shard's memory.
    ///
    /// # Errors
    /// The memory is too small.
    pub fn open(place: Place, limits: Limits, memory: Registered, incarnations_at: usize) -> Result<Desk> {
        let incarnations = Incarnations::new(memory, incarnations_at, place.shards)
            .context("memory for the incarnations")?;
        let run = crate::kv::serve::fresh_seed().max(1);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock stands before 1970")?;
        // The loader's timestamp is 1.
        Ok(Desk { place, limits, run, began: now.as_micros() as u64 - 2, incarnations })
    }

    /// Which shard it is.
    pub fn place(&self) -> Place {
        self.place
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
        let hello =
            Hello::decode(hello).context("this is a shard of transactions, and the client is none of it")?;
        let Place { shard, shards } = self.place;
        ensure!(
            (hello.shard, hello.shards) == (shard, shards),
            "this is shard {shard} of {shards}, and the client takes it for shard {} of {}: name all shards, in the order of their numbers",
            hello.shard,
            hello.shards
        );
        Ok(hello)
    }

    /// What it is told.
    pub fn welcome(&self, granted: Granted) -> Vec<u8> {
        let Desk { limits, run, began, .. } = *self;
        let welcome = Welcome {
            shard: self.place.shard,
            run,
            began,
            incarnations: self.incarnations.address(),
            limits,
            granted,
        };
        welcome.encode()
    }
}
