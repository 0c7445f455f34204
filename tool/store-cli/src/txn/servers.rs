//! The options that name the shards of a transactional store.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use remora_members::Source;

use remora_service::txn::MOST_SHARDS;

/// Options that name the shards.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub struct ServersArgs {
    /// Addresses of all shards, separated by commas, in the order of their numbers.
    #[arg(long, value_delimiter = ',', value_name = "HOST:PORT")]
    shards: Vec<SocketAddr>,
    /// Map of the shards with one server each: a TOML file, or etcd://HOST:2379/KEY, which is read over
    /// plain HTTP without authentication.
    #[arg(long, value_name = "SOURCE")]
    members: Option<Source>,
}

impl ServersArgs {
    /// Returns the addresses of the shards, in the order of their numbers. A map is read only once: a shard
    /// that moves to another server loses its contents.
    ///
    /// # Errors
    /// Fails if the map cannot be read, a shard has several servers, or there are too many shards.
    pub fn find(&self) -> Result<Vec<SocketAddr>> {
        let addresses = match &self.members {
            None => self.shards.clone(),
            Some(source) => {
                let follower = source.follow()?;
                let map = follower.map();
                let only = |shard: u32| {
                    let mut servers = map.replicas(shard);
                    let first = servers.next().context("a server for each shard")?;
                    let other = servers.next().map(|server| &server.name);
                    ensure!(
                        other.is_none(),
                        "{source} has two servers of shard {shard}, {:?} and {:?}: a transactional store has one per shard",
                        first.name,
                        other.context("the other")?
                    );
                    Ok(first.address)
                };
                (0..map.shards()).map(only).collect::<Result<Vec<_>>>()?
            }
        };
        let count = addresses.len();
        ensure!(count <= MOST_SHARDS, "{count} shards exceed the maximum of {MOST_SHARDS}");
        Ok(addresses)
    }
}
