//! The two designs of transactions, as the test runs use them.

use remora_check::{History, Violation};
use remora_fabric::{QueuePair, Settings, World};
use remora_nic::WorkCompletion;
use remora_store::heap::Reachable;
use remora_store::txn::farm::{self, Caller, recover};
use remora_store::txn::{Client, ClientConfig, Machine, Rules, Shard, ShardConfig};
use remora_store::{Broken, Registered};
use remora_transport::Instant;

use crate::harness::{Endpoint, Host, Link, Serves, Shape};

/// The differences between the protocols. A value holds the sizes of shards and clients, and the rules that
/// clients follow.
pub(crate) trait Protocol: Copy {
    type Shard: Serves;
    type Client: Machine;
    /// True if a client that is alone always commits at once, because dead clients leave it nothing to
    /// repair.
    const ALONE_COMMITS: bool;

    /// Returns the sizes of table and buffers.
    fn shape(&self) -> Shape;
    fn open(&self, memory: &Registered) -> Self::Shard;
    /// Returns the size of a client's memory, in bytes.
    fn arena_len(&self, shards: usize) -> usize;
    /// Creates a client of all shards, with its memory and a unique number above 0.
    fn join(
        &self,
        world: &mut World,
        hosts: &mut [Host<Self::Shard>],
        links: &[Link],
        arena: Registered,
        number: u64,
    ) -> Self::Client;
    /// Returns the time until which a client pauses after `aborted` transactions in a row have aborted.
    fn pause(client: &mut Self::Client, now: Instant, aborted: u32) -> Instant;
    /// Ends the transactions of a client whose connections have all ended. Returns the number of locks that
    /// it held.
    fn recover(hosts: &mut [Host<Self::Shard>], number: u64) -> u64;
    /// Checks that these clients are idle and that there are no others.
    #[track_caller]
    fn rests(host: &Host<Self::Shard>, clients: usize);
    fn judge(history: &History) -> Result<(), Violation>;
}

/// The design PRISM-TX.
#[derive(Copy, Clone)]
pub(crate) struct PrismTx {
    pub shard: ShardConfig,
    pub client: ClientConfig,
    /// Size of a buffer in bytes, and number of buffers.
    pub buffers: (u32, u32),
    /// Largest number of connections of a shard.
    pub peers: u32,
}

impl PrismTx {
    pub(crate) fn with(self, rules: Rules) -> PrismTx {
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

    fn join(
        &self,
        _: &mut World,
        hosts: &mut [Host<Shard>],
        _: &[Link],
        arena: Registered,
        _: u64,
    ) -> Client {
        let grants = hosts.iter_mut().map(|host| {
            let classes = host.keeper.classes().clone();
            host.table.accept(&classes).expect("space for another session")
        });
        Client::new(self.client, grants.collect(), arena).expect("a client")
    }

    fn pause(_: &mut Client, now: Instant, _: u32) -> Instant {
        now
    }

    /// Nothing to do: a client that meets an unfinished transaction repairs it.
    fn recover(_: &mut [Host<Shard>], _: u64) -> u64 {
        0
    }

    fn rests(_: &Host<Shard>, _: usize) {}

    fn judge(history: &History) -> Result<(), Violation> {
        remora_check::serializable(history)
    }
}

/// The design FaRM.
#[derive(Copy, Clone)]
pub(crate) struct Farm {
    pub shard: farm::ShardConfig,
    pub client: farm::ClientConfig,
}

impl Farm {
    pub(crate) fn with(self, rules: farm::Rules) -> Farm {
        Farm { client: farm::ClientConfig { rules, ..self.client }, ..self }
    }
}

/// A shard of FaRM with the clients that it serves.
pub(crate) struct Served {
    shard: farm::Shard,
    callers: Vec<(QueuePair, Caller)>,
}

impl Reachable for Served {
    fn entries(&self) -> usize {
        self.shard.entries()
    }

    fn buffers(&self, entry: usize, report: &mut dyn FnMut(u64)) {
        self.shard.buffers(entry, report);
    }
}

impl Serves for Served {
    const CALLED: bool = true;

    fn call(&mut self, qp: QueuePair, call: &WorkCompletion, nic: &mut Endpoint<'_>) -> Result<(), Broken> {
        let caller = self.callers.iter_mut().find(|(theirs, _)| *theirs == qp);
        let (_, caller) = caller.ok_or(Broken::Protocol)?;
        self.shard.handle(caller, call, nic)
    }
}

impl Protocol for Farm {
    type Shard = Served;
    type Client = farm::Client;
    const ALONE_COMMITS: bool = true;

    fn shape(&self) -> Shape {
        // Objects stay in place, but a keeper needs at least one buffer.
        Shape { table_len: self.shard.table_len(), classes: vec![(64, 1)], peers: self.shard.clients }
    }

    fn open(&self, memory: &Registered) -> Served {
        let shard = farm::Shard::open(self.shard, memory).expect("memory for the table");
        Served { shard, callers: Vec::new() }
    }

    fn arena_len(&self, _: usize) -> usize {
        self.client.arena_len(self.shard.max_pair)
    }

    fn join(
        &self,
        world: &mut World,
        hosts: &mut [Host<Served>],
        links: &[Link],
        arena: Registered,
        number: u64,
    ) -> farm::Client {
        let grants = hosts.iter_mut().zip(links).map(|(host, Link { far: qp, .. })| {
            let Served { shard, callers } = &mut host.table;
            let grant = shard.accept(number).expect("space for a client");
            let caller = shard.listen(number, &mut Endpoint { world, qp: *qp }).expect("receive requests");
            callers.push((*qp, caller.expect("one that was accepted")));
            grant
        });
        let config = farm::ClientConfig { seed: number, ..self.client };
        farm::Client::new(config, grants.collect(), arena).expect("a client")
    }

    fn pause(client: &mut farm::Client, now: Instant, aborted: u32) -> Instant {
        client.retry_at(now, aborted)
    }

    fn recover(hosts: &mut [Host<Served>], number: u64) -> u64 {
        let locked =
            |hosts: &[Host<Served>]| -> u64 { hosts.iter().map(|host| host.table.shard.locked()).sum() };
        let before = locked(hosts);
        let mut shards: Vec<&mut farm::Shard> = hosts.iter_mut().map(|host| &mut host.table.shard).collect();
        recover(&mut shards, number);
        before - locked(hosts)
    }

    fn rests(host: &Host<Served>, clients: usize) {
        let left = (host.table.shard.locked(), host.table.shard.names().count());
        assert_eq!(left, (0, clients), "locks and clients left");
    }

    fn judge(history: &History) -> Result<(), Violation> {
        remora_check::strictly_serializable(history)
    }
}

pub(crate) fn settings() -> Settings {
    Settings { prism: true, mtu: 256, send_slots: 256, ..Settings::default() }
}
