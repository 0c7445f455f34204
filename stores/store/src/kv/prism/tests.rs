//! An exhaustive search of small worlds that grow: a few clients with one or two operations each, and a
//! mover. It tries every order in which the server's NIC can execute their requests, and lets one of them
//! die at any moment. The clients' results must be possible for a sequential execution.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

use xxhash_rust::xxh3::Xxh3;

use super::{Client, ClientConfig, Config, Loader, MovePolicy, Mover, PrismTable};
use crate::heap::{Class, Classes, Reachable};
use crate::kv::{Operation, Outcome};
use crate::txn::tests::executor::{Net, Server, block};
use crate::{Connections, Registered};
use Operation::{Delete, Get, Put};

const BUFFERS: u32 = 10;
const BUFFER: u32 = 64;
/// A key is a number, and so is a value.
type Request = (Operation, u8, u8);
/// The result of an operation: the value, or whether there was one.
type Reply = Option<u8>;

/// The world to search.
#[derive(Clone, Debug)]
struct World {
    slots: u64,
    tables: u32,
    /// Keys that exist at the beginning, with value 0.
    loaded: &'static [u8],
    clients: &'static [&'static [Request]],
    /// True if one of the clients, or the mover, may die; another mover replaces a dead one.
    deaths: bool,
    care: MovePolicy,
}

const CONFIG: ClientConfig = ClientConfig { window: 1, max_key: 1, max_value: 1, first_read: 32, known: 2 };

/// A possible next step of a run.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Move {
    /// The NIC executes an operation of this client or the mover; clients process the result at once.
    Step(usize),
    /// The mover examines the slots.
    Think,
    Die(usize),
}

/// An operation, with the times of its request and its answer.
#[derive(Copy, Clone, Debug, Hash)]
struct Event {
    asked: (u8, u8, u8),
    begin: usize,
    end: Option<(usize, Reply)>,
}

struct Program {
    client: Client,
    next: usize,
    /// Index of the open operation's event.
    open: Option<usize>,
}

struct Run<'w> {
    world: &'w World,
    net: Net<PrismTable>,
    programs: Vec<Program>,
    mover: Mover,
    /// Number of the mover's queue pair, and its memory.
    way: usize,
    arena: Registered,
    started: bool,
    died: bool,
    events: Vec<Event>,
    now: usize,
}

impl<'w> Run<'w> {
    fn new(world: &'w World) -> Run<'w> {
        let World { slots, tables, .. } = *world;
        let config = Config { slots, tables, hash_seed: 1, max_key: 1, max_value: 1 };
        let len = config.table_len();
        let memory = block(1 << 32, 1, len + (BUFFER * BUFFERS) as usize);
        let class = Class { list: 1, base: (1 << 32) + len as u64, size: BUFFER, count: BUFFERS };
        let classes = Classes::new(vec![class]).unwrap();
        let table = PrismTable::new(config, memory.clone());
        let mut loader = Loader::new(classes.clone());
        world.loaded.iter().for_each(|key| loader.put(&table, &[*key], &[0]).unwrap());
        let free =
            (0..BUFFERS).map(|index| class.address(index)).filter(|address| !loader.has_used(*address));
        let free = free.collect();
        let server = Server { shard: table.clone(), memory, classes, free };
        let mut net = Net::of(vec![server]);
        // The mover's queue pair follows those of the clients.
        let way = world.clients.len();
        let programs = world.clients.iter().map(|_| join(&mut net)).collect();
        let arena = net.connect(Mover::arena_len());
        let mover = Mover::new(table, arena.clone(), world.care).unwrap();
        let mut run = Run {
            world,
            net,
            programs,
            mover,
            way,
            arena,
            started: false,
            died: false,
            events: Vec::new(),
            now: 0,
        };
        (0..run.programs.len()).for_each(|client| run.proceed(client));
        run
    }

    /// Starts a client's next operation, if the client is idle.
    fn proceed(&mut self, index: usize) {
        let plan = self.world.clients.get(index).copied().unwrap_or_default();
        let Program { next, open, .. } = &mut self.programs[index];
        if let (None, Some(asked)) = (&open, plan.get(*next)) {
            *next += 1;
            self.ask(index, *asked);
        }
    }

    fn ask(&mut self, index: usize, (operation, key, value): Request) {
        let way = if index < self.way { index } else { index + 1 };
        let Program { client, open, .. } = &mut self.programs[index];
        let mut connections = self.net.connections(way);
        let nic = &mut connections.endpoint(0);
        let started = match operation {
            Get => client.get(&[key], nic),
            Put => client.put(&[key], &[value], nic),
            Delete => client.delete(&[key], nic),
            Operation::List => unreachable!("no world lists"),
        };
        started.unwrap();
        *open = Some(self.events.len());
        self.now += 1;
        self.events.push(Event { asked: (operation as u8, key, value), begin: self.now, end: None });
    }

    fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        let works = (0..=self.way).filter(|way| self.net.has_work(*way, 0));
        moves.extend(works.map(Move::Step));
        let idle = !self.net.has_work(self.way, 0) && (self.mover.is_busy() || !self.started);
        moves.extend((idle || self.net.has_answer(self.way, 0)).then_some(Move::Think));
        if self.world.deaths && !self.died {
            let works = (0..=self.way).filter(|way| self.net.has_work(*way, 0));
            moves.extend(works.map(Move::Die));
        }
        moves
    }

    fn make(&mut self, step: Move) {
        match step {
            Move::Step(way) => {
                self.net.step(way, 0);
                if way != self.way {
                    self.deliver(way, way);
                }
            }
            Move::Think => self.think(),
            Move::Die(way) => {
                self.died = true;
                self.net.kill(way);
                if way == self.way {
                    while self.net.poll(way, 0).is_some() {}
                    let table = self.net.servers[0].shard.clone();
                    self.mover = Mover::new(table, self.arena.clone(), self.world.care).unwrap();
                    self.started = false;
                } else {
                    self.programs[way].open = None;
                    self.programs[way].next = usize::MAX;
                }
            }
        }
    }

    fn think(&mut self) {
        self.started = true;
        while let Some(completion) = self.net.poll(self.way, 0) {
            self.mover.complete(&completion, &mut self.net.connections(self.way).endpoint(0)).unwrap();
        }
        self.mover.work(&mut self.net.connections(self.way).endpoint(0)).unwrap();
    }

    /// Delivers the results of a client's executed requests.
    fn deliver(&mut self, index: usize, way: usize) {
        while let Some(completion) = self.net.poll(way, 0) {
            let Program { client, open, .. } = &mut self.programs[index];
            let mut connections = self.net.connections(way);
            let Some(ended) = client.complete(&completion, &mut connections.endpoint(0)).unwrap() else {
                continue;
            };
            let answer = match ended.outcome {
                Outcome::Value(value) => Some(value[0]),
                Outcome::Done => Some(0),
                Outcome::Absent => None,
                other => panic!("{other:?}"),
            };
            self.now += 1;
            self.events[open.take().unwrap()].end = Some((self.now, answer));
        }
        self.proceed(index);
    }

    /// Returns a digest of the state. Two runs in the same state continue in the same way.
    fn state(&self) -> u64 {
        let mut hasher = Xxh3::new();
        let mut bytes = vec![0; self.net.servers[0].memory.bytes.len()];
        self.net.servers[0].memory.read(0, &mut bytes);
        (bytes, &self.net.servers[0].free, &self.events, self.died, self.started).hash(&mut hasher);
        for (index, program) in self.programs.iter().enumerate() {
            (self.net.seen(index), self.net.has_work(index, 0), program.open).hash(&mut hasher);
        }
        let mover = (self.net.queue(self.way, 0), self.net.has_answer(self.way, 0), self.mover.state());
        mover.hash(&mut hasher);
        hasher.finish()
    }

    /// Ends a run: a client reads all keys, which must be consistent with the results so far.
    fn close(mut self) -> Result<u32, String> {
        let (tables, _) = self.net.servers[0].shard.tables();
        let reader = self.programs.len();
        self.programs.push(join(&mut self.net));
        for key in 0..3 {
            self.ask(reader, (Get, key, 0));
            while self.programs[reader].open.is_some() {
                self.net.step(reader + 1, 0);
                self.deliver(reader, reader + 1);
            }
        }
        if !one_after_the_other(&self.events, &mut vec![false; self.events.len()][..], &self.loaded()) {
            return Err(format!("not linearizable: {:?}", self.events));
        }
        let server = &self.net.servers[0];
        let mut leads = Vec::new();
        (0..server.shard.entries())
            .for_each(|entry| server.shard.buffers(entry, &mut |address| leads.push(address)));
        if leads.len() != server.live().len() {
            return Err("an object is in two slots".to_owned());
        }
        if !self.died && server.free.len() + leads.len() != BUFFERS as usize {
            return Err(format!("{} buffers are free and {} live", server.free.len(), leads.len()));
        }
        Ok(tables)
    }

    fn loaded(&self) -> [Option<u8>; 3] {
        std::array::from_fn(|key| self.world.loaded.contains(&(key as u8)).then_some(0))
    }
}

fn join(net: &mut Net<PrismTable>) -> Program {
    let server = &net.servers[0];
    let grant = server.shard.grant(&server.classes);
    let arena = net.connect(CONFIG.arena_len());
    Program { client: Client::new(CONFIG, &grant, arena).unwrap(), next: 0, open: None }
}

/// Returns true if the operations can be ordered such that each takes effect between its request and its
/// answer. An operation without an answer may have been executed or not.
fn one_after_the_other(events: &[Event], done: &mut [bool], keys: &[Option<u8>; 3]) -> bool {
    let open = |index: &usize| !done[*index];
    if (0..events.len()).filter(open).all(|index| events[index].end.is_none()) {
        return true;
    }
    let answered = (0..events.len()).filter(open).filter_map(|index| events[index].end.map(|(time, _)| time));
    let first = answered.min().unwrap_or(usize::MAX);
    for index in (0..events.len()).filter(open).collect::<Vec<_>>() {
        let Event { asked: (operation, key, value), begin, end } = events[index];
        let before = keys[key as usize];
        let (answer, after) = match operation {
            operation if operation == Get as u8 => (before, before),
            operation if operation == Put as u8 => (Some(0), Some(value)),
            _ => (before.map(|_| 0), None),
        };
        if begin > first || end.is_some_and(|(_, saw)| saw != answer) {
            continue;
        }
        let mut keys = *keys;
        keys[key as usize] = after;
        done[index] = true;
        if one_after_the_other(events, done, &keys) {
            return true;
        }
        done[index] = false;
    }
    false
}

/// The result of a search.
#[derive(Debug, Default)]
struct Found {
    states: usize,
    ends: usize,
    /// The maximum number of tables at the end of a run.
    tables: u32,
    broken: Option<String>,
}

/// Searches all orders.
fn search(world: &World) -> Found {
    let mut result = Found::default();
    let mut known = BTreeSet::new();
    let mut paths: Vec<Vec<Move>> = vec![Vec::new()];
    while let Some(mut path) = paths.pop() {
        let mut run = Run::new(world);
        path.iter().for_each(|step| run.make(*step));
        // Continues with the first possible step, and returns later for the others.
        while known.insert(run.state()) {
            let moves = run.moves();
            if let Some(first) = moves.first() {
                paths.extend(moves[1..].iter().map(|step| [path.as_slice(), &[*step]].concat()));
                run.make(*first);
                path.push(*first);
                continue;
            }
            result.ends += 1;
            match run.close() {
                Ok(tables) => result.tables = result.tables.max(tables),
                Err(says) => {
                    result.broken = Some(format!("{says}\nafter {path:?}"));
                    paths.clear();
                }
            }
            break;
        }
    }
    result.states = known.len();
    println!("{world:?}: {} states, {} ends, {} tables", result.states, result.ends, result.tables);
    result
}

/// Asserts that the world is correct in every order, and that the table grew.
fn holds(world: &World) {
    let result = search(world);
    assert_eq!(result.broken, None, "{world:?}");
    assert!(result.tables > 1 && result.ends > 1, "{result:?}");
}

const ONE_KEY: World = World {
    slots: 2,
    tables: 2,
    loaded: &[0],
    clients: &[&[(Put, 0, 1)], &[(Get, 0, 0), (Get, 0, 0)]],
    deaths: false,
    care: MovePolicy::Proved,
};

#[test]
fn a_put_or_delete_of_a_key_that_moves_is_seen_once_and_for_all() {
    holds(&ONE_KEY);
    holds(&World { clients: &[&[(Delete, 0, 0)], &[(Get, 0, 0), (Get, 0, 0)]], ..ONE_KEY });
}

#[test]
fn two_who_change_a_key_that_moves_do_so_one_after_the_other() {
    holds(&World { clients: &[&[(Put, 0, 1)], &[(Put, 0, 2)]], ..ONE_KEY });
    holds(&World { clients: &[&[(Put, 0, 1)], &[(Delete, 0, 0)]], ..ONE_KEY });
}

#[test]
#[ignore = "soak: fifty thousand states"]
fn soak_a_key_that_moves_is_deleted_and_comes_back_while_another_puts_it() {
    holds(&World { clients: &[&[(Delete, 0, 0), (Put, 0, 2)], &[(Put, 0, 1)]], ..ONE_KEY });
}

#[test]
fn a_new_key_is_in_one_table_whoever_inserts_it() {
    holds(&World { clients: &[&[(Put, 1, 1)], &[(Put, 1, 2)]], ..ONE_KEY });
    holds(&World { slots: 3, clients: &[&[(Put, 1, 1), (Get, 1, 0)], &[(Put, 2, 2)]], ..ONE_KEY });
}

#[test]
fn a_death_anywhere_leaves_nothing_broken() {
    holds(&World { clients: &[&[(Put, 0, 1)]], deaths: true, ..ONE_KEY });
    holds(&World { clients: &[&[(Delete, 0, 0)], &[(Get, 0, 0)]], deaths: true, ..ONE_KEY });
}

#[test]
fn the_search_finds_a_move_that_does_not_freeze() {
    let result = search(&World { care: MovePolicy::Unfrozen, ..ONE_KEY });
    let broken = result.broken.expect("a PUT that was forgotten");
    assert!(broken.contains("not linearizable"), "{broken}");
}
