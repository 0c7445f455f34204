//! Where the replicas are, as the command line says it.

use std::net::SocketAddr;

use anyhow::Result;
use clap::Args;
use remora_members::Source;
use remora_service::block::Servers;

/// Which replicas.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub struct ServersArgs {
    /// Where the replicas listen, all of them, with commas between.
    #[arg(long, value_delimiter = ',', value_name = "HOST:PORT")]
    servers: Vec<SocketAddr>,
    /// Map of the replicas: a TOML file, or etcd://HOST:2379/KEY, which is asked over plain HTTP
    /// without a user.
    #[arg(long, value_name = "SOURCE")]
    members: Option<Source>,
}

impl ServersArgs {
    /// Finds them.
    ///
    /// # Errors
    /// There is no map.
    pub fn find(&self) -> Result<Servers> {
        Ok(match &self.members {
            None => Servers::fixed(self.servers.clone()),
            Some(source) => Servers::follow(source)?,
        })
    }
}
