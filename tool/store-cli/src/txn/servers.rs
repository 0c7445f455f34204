//! Where the shards are: as the command line says it, or as a map does.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use remora_members::Source;

use remora_service::txn::MOST_SHARDS;

/// Which shards.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub struct ServersArgs {
    /// Where the shards listen, all of them in the order of their numbers, with commas between.
    #[arg(long, value_delimiter = ',', value_name = "HOST:PORT")]
    shards: Vec<SocketAddr>,
    /// Map of the shards, a server each: a TOML file, or etcd://HOST:2379/KEY, which is asked over plain HTTP
    /// without a user.
    #[arg(long, value_name = "SOURCE")]
    members: Option<Source>,
}

impl ServersArgs {
    /// Their addresses, by number. A map is read once: a shard that moved has left its memory behind.
    ///
    /// # Errors
    /// There is no map, or too many shards.
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
                        "{source} has two servers of shard {shard}, {:?} and {:?}: transactions have one",
                        first.name,
                        other.context("the other")?
                    );
                    Ok(first.address)
                };
                (0..map.shards()).map(only).collect::<Result<Vec<_>>>()?
            }
        };
        let count = addresses.len();
        ensure!(count <= MOST_SHARDS, "{count} shards are more than the {MOST_SHARDS} of a store");
        Ok(addresses)
    }
}
