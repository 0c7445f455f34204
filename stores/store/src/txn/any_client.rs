//! A transaction client of either design.

use remora_nic::WorkCompletion;
use remora_transport::Status;

use super::{
    Client, ClientConfig, Design, EntryId, Event, Granted, Known, Limits, Machine, Outcome, Refused, Tx, farm,
};
use crate::{Broken, Connections, QueueNeeds, Registered};

/// A transaction client of the design that the shards use.
#[derive(Debug)]
pub enum AnyClient {
    /// The design PRISM-TX.
    PrismTx(Client),
    /// The design of FaRM.
    Farm(farm::Client),
}

fn prism_tx(limits: &Limits) -> ClientConfig {
    let Limits { max_key, max_value, max_keys, window } = *limits;
    ClientConfig { window, max_keys, max_key, max_value, ..ClientConfig::default() }
}

fn of_farm(limits: &Limits, seed: u64) -> farm::ClientConfig {
    let Limits { max_key, max_value, max_keys, window } = *limits;
    farm::ClientConfig { window, max_keys, max_key, max_value, seed, ..farm::ClientConfig::default() }
}

/// The reason for which an [`AnyClient`] cannot be created.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// The shards have different designs.
    #[error("the shards are of different designs")]
    Designs,
    /// The shards grant less than the limits require, or issue client numbers inconsistently.
    #[error("the shards do not grant so much, or number their clients differently")]
    Grants,
}

impl AnyClient {
    /// Returns the sizes of queue pair that are sufficient for either design.
    pub fn needs(limits: &Limits) -> QueueNeeds {
        prism_tx(limits).needs().max(of_farm(limits, 0).needs())
    }

    /// Returns the bytes of registered memory that a client of these shards needs.
    pub fn arena_len(limits: &Limits, grants: &[Granted]) -> usize {
        let longest = |granted: &Granted| match granted {
            Granted::PrismTx(_) => 0,
            Granted::Farm(grant) => grant.max_pair,
        };
        match grants.first().map(Granted::design) {
            Some(Design::Farm) => of_farm(limits, 0).arena_len(grants.iter().map(longest).max().unwrap_or(0)),
            _ => prism_tx(limits).arena_len(grants.len()),
        }
    }

    /// Returns a client of the shards that sent these grants, in the order of the shard map. `seed` seeds
    /// the pauses of a FaRM client before it retries locks.
    ///
    /// # Errors
    /// The grants do not match each other or the limits.
    pub fn new(
        limits: &Limits,
        grants: Vec<Granted>,
        arena: Registered,
        seed: u64,
    ) -> Result<AnyClient, GrantError> {
        let mut prism = Vec::new();
        let mut farm = Vec::new();
        for granted in grants {
            match granted {
                Granted::PrismTx(grant) => prism.push(grant),
                Granted::Farm(grant) => farm.push(grant),
            }
        }
        if !prism.is_empty() && !farm.is_empty() {
            return Err(GrantError::Designs);
        }
        let client = match farm.is_empty() {
            true => Client::new(prism_tx(limits), prism, arena).map(AnyClient::PrismTx),
            false => farm::Client::new(of_farm(limits, seed), farm, arena).map(AnyClient::Farm),
        };
        client.ok_or(GrantError::Grants)
    }

    /// Returns the design of the shards.
    pub fn design(&self) -> Design {
        match self {
            AnyClient::PrismTx(_) => Design::PrismTx,
            AnyClient::Farm(_) => Design::Farm,
        }
    }
}

/// Calls the same method of the client of either design.
macro_rules! either {
    ($self:expr, $client:ident => $call:expr) => {
        match $self {
            AnyClient::PrismTx($client) => $call,
            AnyClient::Farm($client) => $call,
        }
    };
}

impl Machine for AnyClient {
    fn start(&mut self, connections: &mut impl Connections) -> Result<(), Broken> {
        either!(self, client => client.start(connections))
    }

    #[inline]
    fn begin(&mut self) -> Result<Tx, Refused> {
        either!(self, client => client.begin())
    }

    #[inline]
    fn read(&mut self, tx: Tx, key: &[u8], connections: &mut impl Connections) -> Result<EntryId, Refused> {
        either!(self, client => client.read(tx, key, connections))
    }

    #[inline]
    fn write(
        &mut self,
        tx: Tx,
        key: &[u8],
        value: &[u8],
        connections: &mut impl Connections,
    ) -> Result<EntryId, Refused> {
        either!(self, client => client.write(tx, key, value, connections))
    }

    fn delete(&mut self, tx: Tx, key: &[u8], connections: &mut impl Connections) -> Result<EntryId, Refused> {
        either!(self, client => client.delete(tx, key, connections))
    }

    #[inline]
    fn value(&mut self, tx: Tx, entry: EntryId) -> Option<Known<'_>> {
        either!(self, client => client.value(tx, entry))
    }

    #[inline]
    fn commit(
        &mut self,
        tx: Tx,
        clock: u64,
        connections: &mut impl Connections,
    ) -> Result<Option<Event<'static>>, Refused> {
        either!(self, client => client.commit(tx, clock, connections))
    }

    fn abort(&mut self, tx: Tx) -> Result<Option<Event<'static>>, Refused> {
        either!(self, client => client.abort(tx))
    }

    #[inline]
    fn complete(
        &mut self,
        shard: usize,
        completion: &WorkCompletion,
        connections: &mut impl Connections,
    ) -> Result<Option<Event<'_>>, Broken> {
        either!(self, client => client.complete(shard, completion, connections))
    }

    fn return_buffers(&mut self, shard: usize, connections: &mut impl Connections) -> Result<(), Broken> {
        either!(self, client => client.return_buffers(shard, connections))
    }

    fn in_flight(&self) -> usize {
        either!(self, client => client.in_flight())
    }

    fn is_awaited(&self) -> bool {
        either!(self, client => client.is_awaited())
    }

    fn give_up(&mut self, status: Status) {
        either!(self, client => client.give_up(status));
    }

    fn abandon(&mut self) -> Option<(Tx, Outcome)> {
        either!(self, client => client.abandon())
    }
}
