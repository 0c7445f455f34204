//! FaRM's transactions, as PRISM-TX's are run: two shards, and everything that goes wrong. Whatever committed must have been possible one
//! after the other, each between its begin and its end.

use check::{Asked, History, Measures, Step};
use remora_fabric::{Config, Random, World};
use store::txn::farm::{Client, ClientConfig, Rules, Shard, ShardConfig, recover};
use store::txn::{EntryId, Event, Outcome, Tx};
use store::{Broken, Registered};
use transport::Instant;

use crate::harness::{Ends, Host, Link, Shape, arena};
use crate::mishaps::{Mishap, Plan, Tally, cut_off};
use crate::txn::{CLIENTS, KEYS, MISHAPS, Open, SHARDS, VALUE, WINDOW, key, record, settings};

const MAX_KEYS: u32 = 4;

const SHARD: ShardConfig = ShardConfig {
    slots: 32,
    reach: 32,
    room: 16 + VALUE as u32,
    clients: 64,
    window: WINDOW as u32,
    max_keys: MAX_KEYS,
};

const CONFIG: ClientConfig = ClientConfig {
    window: WINDOW as u32,
    max_keys: MAX_KEYS,
    max_key: 16,
    max_value: VALUE as u32,
    patience: 12,
    seed: 0,
    rules: Rules::Proved,
};

/// A client with its program.
struct Actor {
    node: usize,
    name: u64,
    links: Vec<Link>,
    client: Client,
    arena: Registered,
    open: Vec<Open>,
    /// Numbers in the history that are not busy.
    numbers: Vec<u32>,
    left: u32,
    /// Transactions that aborted, one behind the other, and when it goes on.
    attempts: u32,
    pause: Instant,
}

/// A client that is gone: the shards learn it when so many steps have passed.
struct Grave {
    name: u64,
    links: Vec<Link>,
    steps: u64,
}

/// What came of the transactions.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    committed: u32,
    aborted: u32,
    /// Locks of dead clients.
    broken: u64,
}

struct Run {
    world: World,
    random: Random,
    plan: Plan,
    rules: Rules,
    hosts: Vec<Host<Shard>>,
    actors: Vec<Actor>,
    graves: Vec<Grave>,
    history: History,
    numbers: u32,
    values: u64,
    names: u64,
    ended: Ended,
}

fn shard(memory: &Registered) -> Shard {
    Shard::open(SHARD, memory).expect("memory for the table")
}

impl Run {
    fn new(seed: u64, plan: Option<Plan>, rules: Rules) -> Run {
        let mut random = Random::new(seed);
        let plan = plan.unwrap_or_else(|| Plan::draw(&mut random));
        let nic = nic::Config { max_qps: 4096, max_cqs: 4096, ..Config::default().nic };
        let mut world = World::new(&Config { seed, nodes: CLIENTS + SHARDS, nic, ..Config::default() });
        world.set_rules(&plan.rules(), seed);
        let shape = Shape { table_len: SHARD.table_len(), classes: vec![(64, 1)], peers: SHARD.clients };
        let host = |at| Host::open(&mut world, CLIENTS + at, shape.clone(), shard);
        let hosts = (0..SHARDS).map(host).collect();
        let mut run = Run {
            world,
            random,
            plan,
            rules,
            hosts,
            actors: Vec::new(),
            graves: Vec::new(),
            history: History::default(),
            numbers: 0,
            values: 0,
            names: 0,
            ended: Ended::default(),
        };
        for node in 0..CLIENTS {
            let arena = arena(&mut run.world, node, CONFIG.arena_len(SHARD.room));
            run.join(node, arena, 10);
        }
        run
    }

    fn join(&mut self, node: usize, arena: Registered, left: u32) {
        self.names += 1;
        let (mut links, mut grants) = (Vec::new(), Vec::new());
        for host in &mut self.hosts {
            links.push(host.accept(&mut self.world, node, &settings()).expect("a connection"));
            grants.push(host.table.accept(self.names).expect("room for another client"));
        }
        let config = ClientConfig { rules: self.rules, seed: self.names, ..CONFIG };
        let client = Client::new(config, grants, arena.clone()).expect("a client");
        self.actors.push(Actor {
            node,
            name: self.names,
            links,
            client,
            arena,
            open: Vec::new(),
            numbers: Vec::new(),
            left,
            attempts: 0,
            pause: Instant(0),
        });
    }

    /// Everybody's programs have a turn, and a little time passes.
    fn step(&mut self) {
        self.hosts.iter_mut().for_each(|host| host.turn(&mut self.world));
        for at in (0..self.actors.len()).rev() {
            if self.turn(at).is_err() {
                self.leave(at, true);
            }
        }
        for at in (0..self.graves.len()).rev() {
            match self.graves[at].steps {
                0 => self.bury(at),
                _ => self.graves[at].steps -= 1,
            }
        }
        let limit = self.world.now().after(4_000);
        self.world.step_until(limit);
    }

    /// The shards end a dead client's connections, all of them, and then what it began.
    fn bury(&mut self, at: usize) {
        let Grave { name, links, .. } = self.graves.swap_remove(at);
        for link in &links {
            self.hosts.iter_mut().for_each(|host| host.lose(&mut self.world, link));
        }
        let before: u64 = self.hosts.iter().map(|host| host.table.locked()).sum();
        let mut shards: Vec<&mut Shard> = self.hosts.iter_mut().map(|host| &mut host.table).collect();
        recover(&mut shards, name);
        let after: u64 = self.hosts.iter().map(|host| host.table.locked()).sum();
        self.ended.broken += before - after;
    }

    /// A client is gone. If it is not dead, it says what it knows of its transactions. Another one joins.
    fn leave(&mut self, at: usize, alive: bool) {
        let mut actor = self.actors.swap_remove(at);
        let now = self.world.now().0;
        actor.client.give_up(nic::Status::WrFlushed);
        while let (true, Some((tx, outcome))) = (alive, actor.client.abandon()) {
            if let Some(open) = actor.open.iter().position(|open| open.tx == tx) {
                let open = actor.open.remove(open);
                record(&mut self.history, &mut actor.numbers, &open, outcome, now);
            }
        }
        actor.links.iter().for_each(|link| link.end(&mut self.world));
        let steps = self.random.below(40);
        self.graves.push(Grave { name: actor.name, links: actor.links, steps });
        self.join(actor.node, actor.arena, actor.left);
    }

    /// A client's program has its turn.
    fn turn(&mut self, at: usize) -> Result<(), Broken> {
        for shard in 0..SHARDS {
            while let Some(completion) = self.actors[at].links[shard].poll(&mut self.world) {
                self.complete(at, shard, &completion)?;
            }
        }
        self.begin(at);
        self.commit(at);
        Ok(())
    }

    fn complete(&mut self, at: usize, shard: usize, completion: &nic::WorkCompletion) -> Result<(), Broken> {
        let Actor { client, links, open, .. } = &mut self.actors[at];
        let mut fleet = Ends { world: &mut self.world, links };
        match client.complete(shard, completion, &mut fleet)? {
            None => {}
            Some(Event::Read { tx, entry, value }) => {
                let open = open.iter_mut().find(|open| open.tx == tx).expect("an open transaction");
                let (_, key) = open.reads.iter().find(|(id, _)| *id == entry).expect("a key that was read");
                let value = value.map(|bytes| {
                    assert_eq!(bytes.len(), VALUE, "a value of another length");
                    check::identify(bytes)
                });
                assert_ne!(value, Some(check::TORN), "a torn value came to the program");
                open.found.push(Step::Read { key: *key, value });
            }
            Some(Event::Ended { tx, outcome, .. }) => self.ended(at, tx, outcome),
        }
        Ok(())
    }

    fn ended(&mut self, at: usize, tx: Tx, outcome: Outcome) {
        let (actor, now) = (&mut self.actors[at], self.world.now());
        let place = actor.open.iter().position(|open| open.tx == tx).expect("an open transaction");
        let open = actor.open.remove(place);
        if let Outcome::Committed(_) = outcome {
            self.ended.committed += 1;
            actor.attempts = 0;
        } else {
            self.ended.aborted += 1;
            actor.pause = actor.client.retry_at(now, actor.attempts);
            actor.attempts += 1;
        }
        record(&mut self.history, &mut actor.numbers, &open, outcome, now.0);
    }

    /// Begins a transaction on up to three keys, if there is room.
    fn begin(&mut self, at: usize) {
        let actor = &mut self.actors[at];
        if actor.left == 0 || actor.pause > self.world.now() || self.random.below(3) == 0 {
            return;
        }
        let Ok(tx) = actor.client.begin() else { return };
        actor.left -= 1;
        let (mut reads, mut writes, mut keys) = (Vec::new(), Vec::new(), Vec::new());
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
        self.open(at, tx, &reads, &writes);
    }

    /// What a transaction reads and writes.
    fn open(&mut self, at: usize, tx: Tx, reads: &[u64], writes: &[(u64, u64)]) {
        let actor = &mut self.actors[at];
        let mut fleet = Ends { world: &mut self.world, links: &actor.links };
        let mut value = vec![0; VALUE];
        let read = |number: &u64| {
            (actor.client.read(tx, &key(*number), &mut fleet).expect("room for a key"), *number)
        };
        let reads: Vec<(EntryId, u64)> = reads.iter().map(read).collect();
        for (number, stamp) in writes {
            check::stamp(*stamp, &mut value);
            actor.client.write(tx, &key(*number), &value, &mut fleet).expect("room for a key");
        }
        let number = actor.numbers.pop().unwrap_or_else(|| {
            self.numbers += 1;
            self.numbers
        });
        let writes = writes.iter().map(|(key, value)| Step::Write { key: *key, value: *value }).collect();
        let (began, found) = (self.world.now().0, Vec::new());
        actor.open.push(Open { tx, number, began, reads, found, writes, committing: false });
    }

    /// Commits what has all its values.
    fn commit(&mut self, at: usize) {
        for place in (0..self.actors[at].open.len()).rev() {
            let Actor { client, links, open, .. } = &mut self.actors[at];
            let this = &mut open[place];
            if this.committing || this.found.len() < this.reads.len() {
                continue;
            }
            this.committing = true;
            self.history.invoke(this.number, this.began, &this.writes);
            let mut fleet = Ends { world: &mut self.world, links };
            let ended = client.commit(this.tx, 0, &mut fleet);
            if let Ok(Some(Event::Ended { tx, outcome, .. })) = ended {
                self.ended(at, tx, outcome);
            }
        }
    }

    fn run(&mut self, tally: &mut Tally) {
        let cut = self.random.below((CLIENTS + SHARDS) as u64) as usize;
        for step in 0..500 {
            self.step();
            if self.plan.has(Mishap::Death) && self.random.below(120) == 0 {
                let at = self.random.below(self.actors.len() as u64) as usize;
                self.leave(at, false);
                tally.fired(Mishap::Death);
            }
            if self.plan.has(Mishap::Partition) && step == 100 {
                cut_off(&mut self.world, cut, CLIENTS + SHARDS, true);
                tally.fired(Mishap::Partition);
            }
            if self.plan.has(Mishap::Restart) && step == 180 {
                let host = self.random.below(SHARDS as u64) as usize;
                self.hosts[host].crash(&mut self.world);
                self.hosts[host].restart(&mut self.world, shard);
                (0..self.actors.len()).rev().for_each(|at| self.leave(at, true));
                tally.fired(Mishap::Restart);
            }
        }
        cut_off(&mut self.world, cut, CLIENTS + SHARDS, false);
    }

    /// Everybody ends what it does, the dead are buried, and no lock is left. Then somebody reads all keys, four at a time.
    fn rest(&mut self) {
        let quiet = |run: &Run| {
            run.graves.is_empty() && run.actors.iter().all(|actor| actor.left == 0 && actor.open.is_empty())
        };
        for _ in 0..20_000 {
            self.step();
            if quiet(self) {
                break;
            }
        }
        assert!(quiet(self), "a transaction never ends");
        for host in &self.hosts {
            assert_eq!(
                (host.table.locked(), host.table.names().count()),
                (0, CLIENTS),
                "locks and clients left"
            );
        }
        for first in (0..KEYS).step_by(4) {
            let keys: Vec<u64> = (first..first + 4).collect();
            let (tx, before) = (self.actors[0].client.begin().expect("room"), self.ended.committed);
            self.open(0, tx, &keys, &[]);
            for _ in 0..20_000 {
                if self.actors[0].open.is_empty() {
                    break;
                }
                self.step();
            }
            assert_eq!(self.ended.committed, before + 1, "alone it commits at once");
        }
    }
}

/// So many runs with the rules that hold.
fn histories(seeds: std::ops::Range<u64>) {
    let (mut tally, mut measures) = (Tally::default(), Measures::default());
    let mut ended = Ended::default();
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let mut run = Run::new(seed, None, Rules::Proved);
        run.run(&mut tally);
        run.rest();
        check::hold(&format!("farm txn seed {seed}"), &run.history, check::strictly_serializable);
        measures.add(&run.history, &[]);
        tally.run_over(&run.world);
        ended.committed += run.ended.committed;
        ended.aborted += run.ended.aborted;
        ended.broken += run.ended.broken;
    }
    println!("{ended:?}");
    tally.check(&MISHAPS);
    measures.hold(&Asked {
        histories: count as usize,
        clients: CLIENTS,
        keys: 16,
        overlapping: 0.3,
        faults: &[],
        fired: 0.2,
    });
    assert!(ended.committed * 2 > ended.aborted, "however crowded the keys, some commit");
    assert!(ended.broken > 0, "nobody died with locks in his hands");
}

#[test]
fn a_thousand_histories_are_strictly_serializable_whoever_dies() {
    histories(0..1000);
}

#[test]
#[ignore = "soak: ten thousand histories, half an hour"]
fn ten_thousand_histories_are_strictly_serializable() {
    histories(1_000_000..1_010_000);
}

#[test]
fn reads_that_are_not_validated_are_caught() {
    let quiet = Plan::draw(&mut Random::new(0));
    let caught = (0..100).find(|seed| {
        let mut run = Run::new(*seed, Some(quiet), Rules::ReadsUnchecked);
        run.world.set_rules(&remora_fabric::fault::Rules::of(Vec::new()), 0);
        (0..2000).for_each(|_| run.step());
        let says = check::serializable(&run.history).err();
        says.is_some_and(|violation| violation.to_string().contains("a cycle"))
    });
    assert!(caught.is_some());
}
