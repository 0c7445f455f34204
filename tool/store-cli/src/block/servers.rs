//! The options that name the replicas of a block store.

use std::net::SocketAddr;

use anyhow::Result;
use clap::Args;
use remora_members::Source;
use remora_service::block::Servers;

/// Options that name the replicas.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub struct ServersArgs {
    /// Addresses of all replicas, separated by commas, in the order of their numbers.
    #[arg(long, value_delimiter = ',', value_name = "HOST:PORT")]
    servers: Vec<SocketAddr>,
    /// Map of the replicas: a TOML file, or etcd://HOST:2379/KEY, which is read over plain HTTP without
    /// authentication.
    #[arg(long, value_name = "SOURCE")]
    members: Option<Source>,
}

impl ServersArgs {
    /// Returns the replicas.
    ///
    /// # Errors
    /// Fails if the map cannot be read.
    pub fn find(&self) -> Result<Servers> {
        Ok(match &self.members {
            None => Servers::fixed(self.servers.clone()),
            Some(source) => Servers::follow(source)?,
        })
    }
}
