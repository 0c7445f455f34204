//! The client machine of either design.

use anyhow::{Context as _, Result};
use remora_store::block::{
    ClientConfig, Design, Finished, Grant, Lost, Operation, Refused, Slot, abdlock, prism_rs,
};
use remora_store::{Broken, Connections, QueueNeeds, Registered};
use remora_transport::Instant;
use remora_verbs::WorkCompletion;

/// One of them.
pub enum Machine {
    PrismRs(prism_rs::Client),
    AbdLock(abdlock::Client),
}

impl Machine {
    /// Bytes of memory that it needs.
    pub fn arena_len(design: Design, config: &ClientConfig) -> usize {
        match design {
            Design::PrismRs => prism_rs::Client::arena_len(config),
            Design::AbdLock => abdlock::Client::arena_len(config),
        }
    }

    /// What a queue pair must hold, whichever design the replica turns out to have.
    pub fn needs(config: &ClientConfig) -> QueueNeeds {
        let (one, other) = (prism_rs::Client::needs(config), abdlock::Client::needs(config));
        QueueNeeds {
            send: one.send.max(other.send),
            receive: one.receive.max(other.receive),
            sges: one.sges.max(other.sges),
            completions: one.completions.max(other.completions),
        }
    }

    /// Connected to nobody yet.
    pub fn new(design: Design, config: ClientConfig, arena: Registered, seed: u64) -> Result<Machine> {
        let machine = match design {
            Design::PrismRs => prism_rs::Client::new(config, arena).map(Machine::PrismRs),
            Design::AbdLock => abdlock::Client::new(config, arena, seed).map(Machine::AbdLock),
        };
        machine.context("a store of blocks has 1, 3, 5 or 7 replicas")
    }

    pub fn connect(
        &mut self,
        replica: usize,
        grant: Grant,
        connections: &mut impl Connections,
    ) -> Result<(), Broken> {
        match self {
            Machine::PrismRs(client) => client.connect(replica, grant, connections),
            Machine::AbdLock(client) => client.connect(replica, grant, connections),
        }
    }

    pub fn disconnect(&mut self, now: Instant, replica: usize, connections: &mut impl Connections) {
        match self {
            Machine::PrismRs(client) => client.disconnect(replica, now, connections),
            Machine::AbdLock(client) => client.disconnect(replica, now, connections),
        }
    }

    /// Starts an operation; `value` is what is written.
    pub fn start(
        &mut self,
        now: Instant,
        (operation, block, value): (Operation, u64, &[u8]),
        connections: &mut impl Connections,
    ) -> Result<Slot, Refused> {
        match (self, operation) {
            (Machine::PrismRs(client), Operation::Read) => client.read(now, block, connections),
            (Machine::PrismRs(client), Operation::Write) => client.write(now, block, value, connections),
            (Machine::AbdLock(client), Operation::Read) => client.read(now, block, connections),
            (Machine::AbdLock(client), Operation::Write) => client.write(now, block, value, connections),
        }
    }

    #[inline]
    pub fn complete(
        &mut self,
        now: Instant,
        replica: usize,
        completion: &WorkCompletion,
        connections: &mut impl Connections,
    ) -> Option<Finished<'_>> {
        match self {
            Machine::PrismRs(client) => client.complete(now, replica, completion, connections),
            Machine::AbdLock(client) => client.complete(now, replica, completion, connections),
        }
    }

    /// Goes on with what has waited long enough.
    #[inline]
    pub fn expire(&mut self, now: Instant, connections: &mut impl Connections) {
        match self {
            Machine::PrismRs(client) if client.next_deadline() <= now => client.expire(now, connections),
            Machine::AbdLock(client) if client.next_deadline() <= now => client.expire(now, connections),
            _ => {}
        }
    }

    pub fn lost(&self) -> Option<Lost> {
        match self {
            Machine::PrismRs(client) => client.lost(),
            Machine::AbdLock(client) => client.lost(),
        }
    }

    /// Nothing is in flight, under way to a slow replica, locked, or to be returned.
    pub fn is_quiet(&self) -> bool {
        match self {
            Machine::PrismRs(client) => client.is_quiet(),
            Machine::AbdLock(client) => client.is_quiet(),
        }
    }
}
