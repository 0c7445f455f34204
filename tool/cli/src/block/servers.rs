//! Where the replicas are: as the command line says it, or as a map does that may change.

use std::net::SocketAddr;

use anyhow::Result;
use clap::Args;
use remora_members::{Follower, Map, Source};

/// Which replicas.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub struct ServersArgs {
    /// Where the replicas listen, all of them, with commas between.
    #[arg(long, value_delimiter = ',', value_name = "HOST:PORT")]
    servers: Vec<SocketAddr>,
    /// Map of the replicas: a TOML file, or etcd://HOST:2379/KEY.
    #[arg(long, value_name = "SOURCE")]
    members: Option<Source>,
}

/// The addresses, by place.
pub struct Servers {
    addresses: Vec<SocketAddr>,
    follower: Option<Follower>,
}

fn addresses(map: &Map) -> Vec<SocketAddr> {
    map.replicas(0).map(|server| server.address).collect()
}

impl ServersArgs {
    /// Finds them.
    ///
    /// # Errors
    /// There is no map.
    pub fn find(&self) -> Result<Servers> {
        Ok(match &self.members {
            None => Servers { addresses: self.servers.clone(), follower: None },
            Some(source) => {
                let follower = source.follow()?;
                Servers { addresses: addresses(follower.map()), follower: Some(follower) }
            }
        })
    }
}

impl Servers {
    /// The addresses as they are now.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The places whose address is another one than before.
    ///
    /// # Errors
    /// The number of replicas is another one: a client that lives cannot change its majority.
    pub fn changed(&mut self) -> Result<Vec<usize>> {
        let Some(follower) = &mut self.follower else { return Ok(Vec::new()) };
        let map = match follower.changed() {
            None => return Ok(Vec::new()),
            Some(Err(error)) => {
                tracing::warn!("the map of replicas stays as it was: {error}");
                return Ok(Vec::new());
            }
            Some(Ok(map)) => map,
        };
        let new = addresses(map);
        anyhow::ensure!(
            new.len() == self.addresses.len(),
            "there were {} replicas and are {} now: begin anew",
            self.addresses.len(),
            new.len()
        );
        let changed = (0..new.len()).filter(|at| new[*at] != self.addresses[*at]).collect();
        self.addresses = new;
        Ok(changed)
    }
}
