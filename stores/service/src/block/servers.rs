//! The addresses of the replicas. They may come from a map that changes while a client runs.

use std::net::SocketAddr;

use remora_members::{Follower, Map, Source, SourceError};

use crate::error::{Result, ensure};

/// The addresses of the replicas, by index.
pub struct Servers {
    addresses: Vec<SocketAddr>,
    follower: Option<Follower>,
    source: Option<Source>,
}

fn addresses(map: &Map) -> Vec<SocketAddr> {
    map.replicas(0).map(|server| server.address).collect()
}

impl Servers {
    /// Returns these replicas, which never change.
    pub fn fixed(addresses: Vec<SocketAddr>) -> Servers {
        Servers { addresses, follower: None, source: None }
    }

    /// Returns the replicas of a map, which may change.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn follow(source: &Source) -> Result<Servers, SourceError> {
        let follower = source.follow()?;
        let source = Some(source.clone());
        Ok(Servers { addresses: addresses(follower.map()), follower: Some(follower), source })
    }

    /// Returns the same replicas for another client, which follows the map independently.
    ///
    /// # Errors
    /// The map cannot be read any more.
    pub fn reopen(&self) -> Result<Servers> {
        match &self.source {
            None => Ok(Servers::fixed(self.addresses.clone())),
            Some(source) => Ok(Servers::follow(source)?),
        }
    }

    /// Returns the current addresses.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the indices of the replicas whose address has changed since the last call.
    ///
    /// # Errors
    /// The number of replicas has changed: a running client cannot change its majority.
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
        ensure!(
            new.len() == self.addresses.len(),
            Config,
            "there were {} replicas and are {} now: begin anew",
            self.addresses.len(),
            new.len()
        );
        let changed = (0..new.len()).filter(|index| new[*index] != self.addresses[*index]).collect();
        self.addresses = new;
        Ok(changed)
    }
}
