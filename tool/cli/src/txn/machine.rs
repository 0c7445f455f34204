//! The client machine of either design, behind one type: which it is, the shards say.

use anyhow::{Context as _, Result};
use remora_store::txn::{
    Client, ClientConfig, Design, DesignKind, EntryId, Event, Granted, Limits, Outcome, Refused, Tx, farm,
};
use remora_store::{Broken, Connections, QueueNeeds, Registered};
use remora_verbs::{Status, WorkCompletion};

/// One of them.
pub enum Machine {
    /// PRISM-TX's.
    PrismTx(Client),
    /// FaRM's.
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

impl Machine {
    /// What a queue pair must hold, whichever design the shards turn out to have.
    pub fn needs(limits: &Limits) -> QueueNeeds {
        let (one, other) = (prism_tx(limits).needs(), of_farm(limits, 0).needs());
        QueueNeeds {
            send: one.send.max(other.send),
            receive: one.receive.max(other.receive),
            sges: one.sges.max(other.sges),
            completions: one.completions.max(other.completions),
        }
    }

    /// Bytes of memory that it needs.
    pub fn arena_len(limits: &Limits, grants: &[Granted]) -> usize {
        let room = |granted: &Granted| match granted {
            Granted::PrismTx(_) => 0,
            Granted::Farm(grant) => grant.max_pair,
        };
        match grants.first().map(Granted::design) {
            Some(DesignKind::Farm) => {
                of_farm(limits, 0).arena_len(grants.iter().map(room).max().unwrap_or(0))
            }
            _ => prism_tx(limits).arena_len(grants.len()),
        }
    }

    /// Of shards that are all of one design.
    ///
    /// # Errors
    /// They are not, or grant less than is asked for.
    pub fn new(limits: &Limits, grants: Vec<Granted>, arena: Registered, seed: u64) -> Result<Machine> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for granted in grants {
            match granted {
                Granted::PrismTx(grant) => ours.push(grant),
                Granted::Farm(grant) => theirs.push(grant),
            }
        }
        anyhow::ensure!(ours.is_empty() || theirs.is_empty(), "the shards are of different designs");
        let machine = match theirs.is_empty() {
            true => Client::new(prism_tx(limits), ours, arena).map(Machine::PrismTx),
            false => farm::Client::new(of_farm(limits, seed), theirs, arena).map(Machine::Farm),
        };
        machine.context("the shards do not grant so much, or number their clients differently")
    }

    /// Which it is.
    pub fn design(&self) -> DesignKind {
        match self {
            Machine::PrismTx(_) => DesignKind::PrismTx,
            Machine::Farm(_) => DesignKind::Farm,
        }
    }
}

/// The same of either.
macro_rules! either {
    ($self:expr, $client:ident => $what:expr) => {
        match $self {
            Machine::PrismTx($client) => $what,
            Machine::Farm($client) => $what,
        }
    };
}

impl Design for Machine {
    fn start(&mut self, connections: &mut impl Connections) -> Result<(), Broken> {
        either!(self, client => Design::start(client, connections))
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
    fn value(&mut self, tx: Tx, entry: EntryId) -> Option<Option<&[u8]>> {
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
        either!(self, client => Design::return_buffers(client, shard, connections))
    }

    fn in_flight(&self) -> usize {
        either!(self, client => client.in_flight())
    }

    fn is_awaited(&self) -> bool {
        either!(self, client => Design::is_awaited(client))
    }

    fn give_up(&mut self, status: Status) {
        either!(self, client => client.give_up(status));
    }

    fn abandon(&mut self) -> Option<(Tx, Outcome)> {
        either!(self, client => client.abandon())
    }
}
