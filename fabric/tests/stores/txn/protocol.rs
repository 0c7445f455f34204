//! The two designs of transactions, as the runs see them.

use check::{History, Violation};
use remora_fabric::Settings;
use store::Registered;
use store::heap::Reachable;
use store::txn::farm::{self, recover};
use store::txn::{Client, ClientConfig, Design, Rules, Shard, ShardConfig};
use transport::Instant;

use crate::harness::{Host, Shape};

/// What differs between them. A value says how large shards and clients are, and which rules the clients keep.
pub trait Protocol: Copy {
    type Shard: Reachable;
    type Client: Design;
    /// A client that is alone always commits at once: nobody dead can have left it something to do.
    const ALONE_COMMITS: bool;

    /// Tables and buffers.
    fn shape(&self) -> Shape;
    fn open(&self, memory: &Registered) -> Self::Shard;
    /// Bytes of a client's memory.
    fn arena_len(&self, shards: usize) -> usize;
    /// A client of all shards; the number is above 0 and nobody else's.
    fn join(&self, hosts: &mut [Host<Self::Shard>], arena: Registered, number: u64) -> Self::Client;
    /// Until when a client pauses whose transactions aborted so many times, one behind the other.
    fn pause(client: &mut Self::Client, now: Instant, aborted: u32) -> Instant;
    /// All connections of a client have ended: what it began is ended. How many locks it held.
    fn bury(hosts: &mut [Host<Self::Shard>], number: u64) -> u64;
    /// These clients are at rest, and nobody else is there.
    #[track_caller]
    fn rests(host: &Host<Self::Shard>, clients: usize);
    fn judge(history: &History) -> Result<(), Violation>;
}

/// PRISM-TX.
#[derive(Copy, Clone)]
pub struct PrismTx {
    pub shard: ShardConfig,
    pub client: ClientConfig,
    /// Bytes of a buffer, and how many.
    pub buffers: (u32, u32),
    /// Connections of a shard.
    pub peers: u32,
}

impl PrismTx {
    pub fn with(self, rules: Rules) -> PrismTx {
        PrismTx { client: ClientConfig { rules, ..self.client }, ..self }
    }
}

impl Protocol for PrismTx {
    type Shard = Shard;
    type Client = Client;
    const ALONE_COMMITS: bool = false;

    fn shape(&self) -> Shape {
        Shape { table_len: self.shard.table_len(), classes: vec![self.buffers], peers: self.peers }
    }

    fn open(&self, memory: &Registered) -> Shard {
        Shard::open(self.shard, memory).expect("memory for the table")
    }

    fn arena_len(&self, shards: usize) -> usize {
        self.client.arena_len(shards)
    }

    fn join(&self, hosts: &mut [Host<Shard>], arena: Registered, _: u64) -> Client {
        let grants = hosts.iter_mut().map(|host| {
            let classes = host.keeper.classes().clone();
            host.table.accept(&classes).expect("room for another session")
        });
        Client::new(self.client, grants.collect(), arena).expect("a client")
    }

    fn pause(_: &mut Client, now: Instant, _: u32) -> Instant {
        now
    }

    /// Whoever meets what it left puts it in order.
    fn bury(_: &mut [Host<Shard>], _: u64) -> u64 {
        0
    }

    fn rests(_: &Host<Shard>, _: usize) {}

    fn judge(history: &History) -> Result<(), Violation> {
        check::serializable(history)
    }
}

/// FaRM's.
#[derive(Copy, Clone)]
pub struct Farm {
    pub shard: farm::ShardConfig,
    pub client: farm::ClientConfig,
}

impl Farm {
    pub fn with(self, rules: farm::Rules) -> Farm {
        Farm { client: farm::ClientConfig { rules, ..self.client }, ..self }
    }
}

impl Protocol for Farm {
    type Shard = farm::Shard;
    type Client = farm::Client;
    const ALONE_COMMITS: bool = true;

    fn shape(&self) -> Shape {
        // Values lie in place. A keeper has a buffer at least.
        Shape { table_len: self.shard.table_len(), classes: vec![(64, 1)], peers: self.shard.clients }
    }

    fn open(&self, memory: &Registered) -> farm::Shard {
        farm::Shard::open(self.shard, memory).expect("memory for the table")
    }

    fn arena_len(&self, _: usize) -> usize {
        self.client.arena_len(self.shard.room)
    }

    fn join(&self, hosts: &mut [Host<farm::Shard>], arena: Registered, number: u64) -> farm::Client {
        let grants = hosts.iter_mut().map(|host| host.table.accept(number).expect("room for a client"));
        let config = farm::ClientConfig { seed: number, ..self.client };
        farm::Client::new(config, grants.collect(), arena).expect("a client")
    }

    fn pause(client: &mut farm::Client, now: Instant, aborted: u32) -> Instant {
        client.retry_at(now, aborted)
    }

    fn bury(hosts: &mut [Host<farm::Shard>], number: u64) -> u64 {
        let locked =
            |hosts: &[Host<farm::Shard>]| -> u64 { hosts.iter().map(|host| host.table.locked()).sum() };
        let before = locked(hosts);
        let mut shards: Vec<&mut farm::Shard> = hosts.iter_mut().map(|host| &mut host.table).collect();
        recover(&mut shards, number);
        before - locked(hosts)
    }

    fn rests(host: &Host<farm::Shard>, clients: usize) {
        let left = (host.table.locked(), host.table.names().count());
        assert_eq!(left, (0, clients), "locks and clients left");
    }

    fn judge(history: &History) -> Result<(), Violation> {
        check::strictly_serializable(history)
    }
}

pub fn settings() -> Settings {
    Settings { prism: true, mtu: 256, send_slots: 256, ..Settings::default() }
}
