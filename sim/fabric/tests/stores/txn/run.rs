//! A run: clients with clocks that are seconds apart, two shards, and all mishaps.

use remora_check::{History, Step};
use remora_fabric::{Config, World};
use remora_fault::Random;
use remora_store::txn::{EntryId, Event, Machine, Outcome, Tx};
use remora_store::{Broken, Registered};
use remora_transport::Instant;

use super::protocol::{Protocol, settings};
use crate::harness::{Endpoints, Host, Link, arena};
use crate::mishaps::{Mishap, Plan, Tally, cut_off};

pub(crate) const CLIENTS: usize = 8;
pub(crate) const WINDOW: u32 = 2;
/// Size of a value: more than four packets.
pub(crate) const VALUE: usize = 1100;
const SHARDS: usize = 2;
const KEYS: u64 = 12;

fn key(number: u64) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

/// A transaction in progress.
struct Open {
    tx: Tx,
    /// Number in the history; not used by another transaction in progress.
    number: u32,
    began: u64,
    reads: Vec<(EntryId, u64)>,
    results: Vec<Step>,
    writes: Vec<Step>,
    committing: bool,
}

impl Open {
    /// Returns true if the transaction writes the keys that it has read.
    fn changes(&self) -> bool {
        let written = |key: u64| {
            self.writes.iter().any(|step| matches!(step, Step::Write { key: written, .. } if *written == key))
        };
        self.reads.iter().any(|(_, key)| written(*key))
    }
}

/// A client with its program.
struct Actor<C> {
    node: usize,
    name: u64,
    links: Vec<Link>,
    client: C,
    arena: Registered,
    open: Vec<Open>,
    /// Unused numbers in the history.
    numbers: Vec<u32>,
    left: u32,
    /// Microseconds by which the clock is ahead.
    skew: u64,
    /// Number of consecutive aborts, and end of the client's pause.
    aborted: u32,
    pause: Instant,
}

/// A client that is gone. The shards notice after a number of steps.
struct DeadClient {
    name: u64,
    links: Vec<Link>,
    steps: u64,
}

/// The counts of the transactions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ended {
    pub committed: u32,
    /// Committed transactions that wrote the keys that they had read.
    pub changed: u32,
    pub aborted: u32,
    /// Transactions of dead clients that others finished.
    pub resolved: u32,
    /// Locks of dead clients.
    pub broken: u64,
}

impl Ended {
    pub(crate) fn add(&mut self, other: &Ended) {
        self.committed += other.committed;
        self.changed += other.changed;
        self.aborted += other.aborted;
        self.resolved += other.resolved;
        self.broken += other.broken;
    }
}

pub(crate) struct Run<P: Protocol> {
    pub world: World,
    pub history: History,
    pub ended: Ended,
    protocol: P,
    random: Random,
    plan: Plan,
    hosts: Vec<Host<P::Shard>>,
    actors: Vec<Actor<P::Client>>,
    graves: Vec<DeadClient>,
    numbers: u32,
    values: u64,
    names: u64,
}

impl<P: Protocol> Run<P> {
    pub(crate) fn new(protocol: P, seed: u64, plan: Option<Plan>) -> Run<P> {
        let mut random = Random::new(seed);
        let plan = plan.unwrap_or_else(|| Plan::draw(&mut random));
        let nic = remora_nic::Config { max_qps: 4096, max_cqs: 4096, ..Config::default().nic };
        let mut world = World::new(&Config { seed, nodes: CLIENTS + SHARDS, nic, ..Config::default() });
        world.set_rules(&plan.rules(), seed);
        let host =
            |index| Host::open(&mut world, CLIENTS + index, protocol.shape(), |memory| protocol.open(memory));
        let hosts = (0..SHARDS).map(host).collect();
        let mut run = Run {
            world,
            history: History::default(),
            ended: Ended::default(),
            protocol,
            random,
            plan,
            hosts,
            actors: Vec::new(),
            graves: Vec::new(),
            numbers: 0,
            values: 0,
            names: 0,
        };
        for node in 0..CLIENTS {
            let arena = arena(&mut run.world, node, protocol.arena_len(SHARDS));
            // Clocks are up to four seconds apart.
            let skew = run.random.below(4_000_000);
            run.join(node, arena, 10, skew);
        }
        run
    }

    fn join(&mut self, node: usize, arena: Registered, left: u32, skew: u64) {
        self.names += 1;
        let accept = |host: &mut Host<P::Shard>| {
            host.accept(&mut self.world, node, &settings()).expect("space for another connection")
        };
        let links: Vec<Link> = self.hosts.iter_mut().map(accept).collect();
        let mut client =
            self.protocol.join(&mut self.world, &mut self.hosts, &links, arena.clone(), self.names);
        client.start(&mut Endpoints { world: &mut self.world, links: &links }).expect("a receive request");
        self.actors.push(Actor {
            node,
            name: self.names,
            links,
            client,
            arena,
            open: Vec::new(),
            numbers: Vec::new(),
            left,
            skew,
            aborted: 0,
            pause: Instant(0),
        });
    }

    /// Gives all clients a turn and advances the time a little.
    pub(crate) fn step(&mut self) {
        self.hosts.iter_mut().for_each(|host| host.turn(&mut self.world));
        for index in (0..self.actors.len()).rev() {
            if self.turn(index).is_err() {
                self.leave(index, true);
            }
        }
        for index in (0..self.graves.len()).rev() {
            match self.graves[index].steps {
                0 => self.recover(index),
                _ => self.graves[index].steps -= 1,
            }
        }
        let limit = self.world.now().after(4_000);
        self.world.step_until(limit);
    }

    /// Lets the shards end all connections of a dead client, and then its transactions.
    fn recover(&mut self, index: usize) {
        let DeadClient { name, links, .. } = self.graves.swap_remove(index);
        for link in &links {
            self.hosts.iter_mut().for_each(|host| host.lose(&mut self.world, link));
        }
        self.ended.broken += P::recover(&mut self.hosts, name);
    }

    /// Disconnects a client, and another one joins. A client that is alive reports its open transactions.
    fn leave(&mut self, index: usize, alive: bool) {
        let mut actor = self.actors.swap_remove(index);
        let now = self.world.now().0;
        actor.client.give_up(remora_nic::Status::WrFlushed);
        while let (true, Some((tx, outcome))) = (alive, actor.client.abandon()) {
            if let Some(open) = actor.open.iter().position(|open| open.tx == tx) {
                let open = actor.open.remove(open);
                record(&mut self.history, &mut actor.numbers, &open, outcome, now);
            }
        }
        actor.links.iter().for_each(|link| link.end(&mut self.world));
        let steps = self.random.below(40);
        self.graves.push(DeadClient { name: actor.name, links: actor.links, steps });
        self.join(actor.node, actor.arena, actor.left, actor.skew);
    }

    /// Gives a client's program a turn.
    fn turn(&mut self, index: usize) -> Result<(), Broken> {
        for shard in 0..SHARDS {
            while let Some(completion) = self.actors[index].links[shard].poll(&mut self.world) {
                self.complete(index, shard, &completion)?;
            }
        }
        self.begin(index);
        self.commit(index);
        let Actor { client, links, .. } = &mut self.actors[index];
        let mut connections = Endpoints { world: &mut self.world, links };
        (0..SHARDS).try_for_each(|shard| client.return_buffers(shard, &mut connections))
    }

    fn complete(
        &mut self,
        index: usize,
        shard: usize,
        completion: &remora_nic::WorkCompletion,
    ) -> Result<(), Broken> {
        let Actor { client, links, open, .. } = &mut self.actors[index];
        let mut connections = Endpoints { world: &mut self.world, links };
        match client.complete(shard, completion, &mut connections)? {
            None => {}
            Some(Event::Read { tx, entry, value }) => {
                let open = open.iter_mut().find(|open| open.tx == tx).expect("an open transaction");
                let (_, key) = open.reads.iter().find(|(id, _)| *id == entry).expect("a key that was read");
                let value = value.map(|bytes| {
                    assert_eq!(bytes.len(), VALUE, "a value of another length");
                    remora_check::identify(bytes)
                });
                assert_ne!(value, Some(remora_check::TORN), "a torn value came to the program");
                open.results.push(Step::Read { key: *key, value });
            }
            Some(Event::Ended { tx, outcome, resolved, .. }) => {
                self.ended.resolved += resolved;
                self.ended(index, tx, outcome);
            }
        }
        Ok(())
    }

    fn ended(&mut self, index: usize, tx: Tx, outcome: Outcome) {
        let actor = &mut self.actors[index];
        let now = self.world.now();
        let place = actor.open.iter().position(|open| open.tx == tx).expect("an open transaction");
        let open = actor.open.remove(place);
        if let Outcome::Committed(_) = outcome {
            self.ended.committed += 1;
            self.ended.changed += u32::from(open.changes());
            actor.aborted = 0;
        } else {
            self.ended.aborted += 1;
            actor.pause = P::pause(&mut actor.client, now, actor.aborted);
            actor.aborted += 1;
        }
        record(&mut self.history, &mut actor.numbers, &open, outcome, now.0);
    }

    /// Starts a transaction on up to three keys, if the window has a free place.
    fn begin(&mut self, index: usize) {
        let actor = &mut self.actors[index];
        if actor.left == 0 || actor.pause > self.world.now() || self.random.below(3) == 0 {
            return;
        }
        let Ok(tx) = actor.client.begin() else { return };
        actor.left -= 1;
        let mut reads = Vec::new();
        let mut writes = Vec::new();
        let mut keys = Vec::new();
        for _ in 0..1 + self.random.below(3) {
            let number = self.random.below(KEYS);
            if keys.contains(&number) {
                continue;
            }
            keys.push(number);
            let does = self.random.below(4);
            if does != 0 {
                reads.push(number);
            }
            if does != 1 {
                self.values += 1;
                writes.push((number, self.values));
            }
        }
        self.open(index, tx, &reads, &writes);
    }

    /// Opens a transaction with these reads and writes.
    fn open(&mut self, index: usize, tx: Tx, reads: &[u64], writes: &[(u64, u64)]) {
        let actor = &mut self.actors[index];
        let mut connections = Endpoints { world: &mut self.world, links: &actor.links };
        let mut value = vec![0; VALUE];
        let read = |number: &u64| {
            (actor.client.read(tx, &key(*number), &mut connections).expect("space for a key"), *number)
        };
        let reads: Vec<(EntryId, u64)> = reads.iter().map(read).collect();
        for (number, stamp) in writes {
            remora_check::stamp(*stamp, &mut value);
            actor.client.write(tx, &key(*number), &value, &mut connections).expect("space for a key");
        }
        let number = actor.numbers.pop().unwrap_or_else(|| {
            self.numbers += 1;
            self.numbers
        });
        let writes = writes.iter().map(|(key, value)| Step::Write { key: *key, value: *value }).collect();
        let began = self.world.now().0;
        let results = Vec::new();
        actor.open.push(Open { tx, number, began, reads, results, writes, committing: false });
    }

    /// Commits the transactions that have all their values.
    fn commit(&mut self, index: usize) {
        let clock = self.world.now().0 / 1000 + self.actors[index].skew;
        for place in (0..self.actors[index].open.len()).rev() {
            let Actor { client, links, open, .. } = &mut self.actors[index];
            let this = &mut open[place];
            if this.committing || this.results.len() < this.reads.len() {
                continue;
            }
            this.committing = true;
            self.history.invoke(this.number, this.began, &this.writes);
            let mut connections = Endpoints { world: &mut self.world, links };
            let ended = client.commit(this.tx, clock, &mut connections);
            if let Ok(Some(Event::Ended { tx, outcome, .. })) = ended {
                self.ended(index, tx, outcome);
            }
        }
    }

    pub(crate) fn run(&mut self, tally: &mut Tally) {
        let cut = self.random.below((CLIENTS + SHARDS) as u64) as usize;
        for step in 0..500 {
            self.step();
            if self.plan.has(Mishap::Death) && self.random.below(120) == 0 {
                let index = self.random.below(self.actors.len() as u64) as usize;
                self.leave(index, false);
                tally.fired(Mishap::Death);
            }
            if self.plan.has(Mishap::Partition) && step == 100 {
                cut_off(&mut self.world, cut, CLIENTS + SHARDS, true);
                tally.fired(Mishap::Partition);
            }
            if self.plan.has(Mishap::Restart) && step == 180 {
                let host = self.random.below(SHARDS as u64) as usize;
                self.hosts[host].crash(&mut self.world);
                let protocol = self.protocol;
                self.hosts[host].restart(&mut self.world, |memory| protocol.open(memory));
                (0..self.actors.len()).rev().for_each(|index| self.leave(index, true));
                tally.fired(Mishap::Restart);
            }
        }
        cut_off(&mut self.world, cut, CLIENTS + SHARDS, false);
    }

    /// Steps until the condition holds.
    fn until(&mut self, label: &str, holds: impl Fn(&Run<P>) -> bool) {
        for _ in 0..20_000 {
            if holds(self) {
                return;
            }
            self.step();
        }
        panic!("{label}");
    }

    /// Lets all clients end their work and recovers dead ones. Then a client reads all keys, four at a time,
    /// until everything is quiet.
    pub(crate) fn rest(&mut self) {
        self.until("a transaction never ends", |run| {
            run.graves.is_empty() && run.actors.iter().all(|actor| actor.left == 0 && actor.open.is_empty())
        });
        self.hosts.iter().for_each(|host| P::rests(host, CLIENTS));
        for first in (0..KEYS).step_by(4) {
            while !self.read_all(first..first + 4) {
                assert!(!P::ALONE_COMMITS, "alone it commits at once");
            }
        }
    }

    /// Reads these keys in one transaction. Returns false if it must be retried.
    fn read_all(&mut self, keys: std::ops::Range<u64>) -> bool {
        let before = self.ended.committed;
        let Ok(tx) = self.actors[0].client.begin() else {
            self.step();
            return false;
        };
        self.open(0, tx, &keys.collect::<Vec<u64>>(), &[]);
        self.until("a key is blocked", |run| run.actors.iter().all(|actor| actor.open.is_empty()));
        self.ended.committed > before
    }

    /// Checks that every buffer is free or live.
    pub(crate) fn account(&mut self, seed: u64) {
        let mut missing = String::new();
        for _ in 0..20_000 {
            self.step();
            missing.clear();
            for host in &self.hosts {
                let buffers = host.buffers(&mut self.world);
                let live = host.live();
                if buffers.free + live != buffers.capacity || buffers.bad_posts > 0 {
                    missing = format!("seed {seed}: {buffers:?}, {live} live, {:?}", host.keeper.stage());
                }
            }
            if missing.is_empty() {
                return;
            }
        }
        panic!("{missing}");
    }
}

/// Records the client's report of a transaction that has ended. The number of a transaction that may still
/// take effect is not reused.
fn record(history: &mut History, numbers: &mut Vec<u32>, open: &Open, outcome: Outcome, now: u64) {
    if !open.committing {
        return numbers.push(open.number);
    }
    match outcome {
        Outcome::Committed(_) => {
            let steps: Vec<_> = open.results.iter().chain(&open.writes).copied().collect();
            history.ok(open.number, now, &steps);
        }
        Outcome::Unknown(_) => return history.info(open.number, now),
        _ => history.fail(open.number, now),
    }
    numbers.push(open.number);
}
