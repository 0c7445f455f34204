//! PRISM-KV under faults: histories that a checker judges, and an account of every buffer.

use std::collections::BTreeSet;

use remora_check::{History, Measures, Step};
use remora_fabric::{Config, Settings, World};
use remora_fault::Random;
use remora_nic::prism::{self, Operation as PrismOperation};
use remora_nic::{CompletionKind, PostError, ReceiveRequest, WorkRequest};
use remora_store::kv::prism::{Client, ClientConfig, Config as TableConfig, MovePolicy, PrismTable};
use remora_store::kv::{Finished, Operation, Outcome, Refusal};
use remora_store::{Post, PostPrism};

use crate::growth::Growth;
use crate::harness::{Buffers, Endpoint, Host, Link, Shape, arena};
use crate::mishaps::{Mishap, Plan, cut_off};
use crate::seeds;

const CLIENTS: usize = 8;
const SERVER: usize = CLIENTS;
const WINDOW: u32 = 2;
const MTU: u32 = 256;
/// Range of the lengths of values: more than four MTUs.
const SHORTEST: u64 = 4 * MTU as u64;
const LONGEST: u64 = 8 * MTU as u64;
const STEPS: usize = 300;
/// Number of keys at the start.
const FIRST: u64 = 4;

/// The parameters of a run.
#[derive(Copy, Clone)]
struct Shaped {
    keys: u64,
    /// Slots of the first table, and largest number of tables.
    slots: u64,
    tables: u32,
    care: MovePolicy,
    /// Number of buffers of each of the two sizes.
    buffers: u32,
    /// Numbers of GETs and of PUTs among 20 operations; the others are DELETEs.
    mix: [u64; 2],
    /// If true, a slot is swapped without checking its generation: a deliberate bug.
    blind: bool,
}

impl Shaped {
    fn classes(self) -> Vec<(u32, u32)> {
        vec![(1536, self.buffers), (2304, self.buffers)]
    }

    fn table(self) -> TableConfig {
        TableConfig {
            slots: self.slots,
            tables: self.tables,
            hash_seed: 5,
            max_key: 16,
            max_value: LONGEST as u32,
        }
    }
}

/// A queue pair of a client, with or without the bug.
struct Hand<'a> {
    end: Endpoint<'a>,
    blind: bool,
}

impl Post for Hand<'_> {
    fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        self.end.post_send(request)
    }

    fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.end.post_receive(request)
    }
}

impl PostPrism for Hand<'_> {
    fn post_prism(&mut self, request: &prism::WorkRequest<'_>) -> Result<(), PostError> {
        let mut request = *request;
        if let (true, PrismOperation::CompareSwap { operands, .. }) = (self.blind, &mut request.operation) {
            operands.compare_mask = [0; 4];
        }
        self.end.post_prism(&request)
    }
}

/// A client's program.
struct Program {
    node: usize,
    client: Client,
    link: Link,
    /// Number of the client's first window place in the history.
    number: u32,
    /// For each place of the window: its operation, if any.
    open: Vec<Option<(u64, u64)>>,
    blind: bool,
}

/// The history, and the next numbers in it.
#[derive(Default)]
struct Book {
    history: History,
    clients: u32,
    value: u64,
    /// Number of operations that failed for lack of a buffer.
    refused: u32,
    /// Number of repeated lookups.
    tries: u32,
    /// Number of swaps, and of those that failed.
    swaps: [u32; 2],
    /// Number of slots that clients moved to the next table themselves.
    helped: u64,
}

impl Program {
    fn join(
        world: &mut World,
        node: usize,
        host: &mut Host<PrismTable>,
        book: &mut Book,
        blind: bool,
    ) -> Option<Program> {
        let config = ClientConfig {
            window: WINDOW,
            max_key: 16,
            max_value: LONGEST as u32,
            first_read: 1400,
            known: 4,
        };
        let settings =
            Settings { prism: true, mtu: MTU, send_slots: config.needs().send, ..Settings::default() };
        let link = host.accept(world, node, &settings)?;
        let grant = host.table.grant(host.keeper.classes());
        let mut client = Client::new(config, &grant, arena(world, node, config.arena_len())).unwrap();
        client.start(&mut Hand { end: Endpoint { world, qp: link.qp }, blind }).unwrap();
        let number = book.clients;
        book.clients += WINDOW;
        Some(Program { node, client, link, number, open: vec![None; WINDOW as usize], blind })
    }

    /// Handles the completions. Returns false if the connection has failed.
    fn hear(&mut self, world: &mut World, book: &mut Book) -> bool {
        while let Some(completion) = self.link.poll(world) {
            let now = world.now().0;
            // Clients use no other comparison.
            if completion.kind == CompletionKind::CompareSwap {
                let lost = completion.outcome == prism::Verdict::NotSwapped;
                book.swaps[usize::from(lost)] += 1;
            }
            let mut nic = Hand { end: Endpoint { world: &mut *world, qp: self.link.qp }, blind: self.blind };
            match self.client.complete(&completion, &mut nic) {
                Ok(Some(ended)) => note(&mut self.open, self.number, &ended, now, book),
                Ok(None) => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Starts an operation, if the window has a free place.
    fn ask(
        &mut self,
        world: &mut World,
        random: &mut Random,
        shaped: &Shaped,
        keys: u64,
        book: &mut Book,
    ) -> bool {
        if self.client.in_flight() == WINDOW as usize {
            return true;
        }
        let now = world.now().0;
        let [gets, puts] = shaped.mix;
        let key = random.below(keys);
        let name = name(key);
        let mut nic = Hand { end: Endpoint { world, qp: self.link.qp }, blind: self.blind };
        let (started, step, value) = match random.below(20) {
            drawn if drawn < gets => (self.client.get(&name, &mut nic), Step::Read { key, value: None }, 0),
            drawn if drawn < gets + puts => {
                book.value += 1;
                let mut bytes = vec![0; random.between(SHORTEST, LONGEST) as usize];
                remora_check::stamp(book.value, &mut bytes);
                let step = Step::Write { key, value: book.value };
                (self.client.put(&name, &bytes, &mut nic), step, book.value)
            }
            _ => (self.client.delete(&name, &mut nic), Step::Delete { key, found: None }, 0),
        };
        let Ok(slot) = started else { return false };
        self.open[slot.index()] = Some((key, value));
        book.history.invoke(self.number + slot.index() as u32, now, &[step]);
        true
    }
}

fn name(key: u64) -> [u8; 8] {
    *format!("key {key:4}").as_bytes().first_chunk().unwrap()
}

/// Records the end of an operation.
fn note(open: &mut [Option<(u64, u64)>], number: u32, ended: &Finished<'_>, now: u64, book: &mut Book) {
    let (key, value) = open[ended.slot.index()].take().expect("an operation that was started");
    let client = number + ended.slot.index() as u32;
    book.tries += ended.tries;
    let step = match (ended.operation, ended.outcome) {
        (Operation::Get, Outcome::Value(bytes)) => {
            Step::Read { key, value: Some(remora_check::identify(bytes)) }
        }
        (Operation::Get, Outcome::Absent) => Step::Read { key, value: None },
        (Operation::Put, Outcome::Done) => Step::Write { key, value },
        (Operation::Delete, Outcome::Done) => Step::Delete { key, found: Some(true) },
        (Operation::Delete, Outcome::Absent) => Step::Delete { key, found: Some(false) },
        (Operation::Put, Outcome::Refused(refusal)) => {
            book.refused += u32::from(refusal == Refusal::NoSpace);
            return book.history.fail(client, now);
        }
        (_, Outcome::Contended) => return book.history.fail(client, now),
        (_, Outcome::Failed(_)) => return book.history.info(client, now),
        (operation, outcome) => panic!("{operation:?} ended with {outcome:?}"),
    };
    book.history.ok(client, now, &[step]);
}

struct Run {
    world: World,
    random: Random,
    plan: Plan,
    shaped: Shaped,
    host: Host<PrismTable>,
    growth: Growth,
    /// Tables added before the last restart of the server, and restarts during a move.
    added: u32,
    cut_short: u32,
    programs: Vec<Program>,
    book: Book,
    fired: BTreeSet<&'static str>,
    asking: bool,
}

impl Run {
    fn new(seed: u64, shaped: Shaped) -> Run {
        let mut random = Random::new(seed);
        let plan = Plan::draw(&mut random);
        let nic = remora_nic::Config { max_qps: 512, max_cqs: 512, ..Config::default().nic };
        let mut world = World::new(&Config { seed, nodes: CLIENTS + 1, nic, ..Config::default() });
        world.set_rules(&plan.rules(), seed);
        let table = shaped.table();
        let shape =
            Shape { table_len: table.table_len(), classes: shaped.classes(), peers: CLIENTS as u32 + 1 };
        let mut host = Host::open(&mut world, SERVER, shape, |memory| PrismTable::new(table, memory.clone()));
        let mut book = Book::default();
        let programs = (0..CLIENTS)
            .map(|node| Program::join(&mut world, node, &mut host, &mut book, shaped.blind).unwrap())
            .collect();
        let growth = Growth::new(&mut world, &host, shaped.care);
        let fired = BTreeSet::new();
        let added = 0;
        let cut_short = 0;
        Run {
            world,
            random,
            plan,
            shaped,
            host,
            growth,
            added,
            cut_short,
            programs,
            book,
            fired,
            asking: true,
        }
    }

    /// Returns the number of tables that were added.
    fn added(&self) -> u32 {
        self.added + self.growth.mover.counters().tables
    }

    /// Gives all clients a turn and advances the time a little.
    fn step(&mut self, keys: u64) {
        self.host.turn(&mut self.world);
        // The mover has few turns, so that much happens between them.
        if self.random.below(8) == 0 {
            self.growth.turn(&mut self.world);
        }
        for index in (0..self.programs.len()).rev() {
            let program = &mut self.programs[index];
            let mut well = program.hear(&mut self.world, &mut self.book);
            if self.asking && well {
                well = program.ask(&mut self.world, &mut self.random, &self.shaped, keys, &mut self.book);
            }
            if !well {
                self.leave(index, true);
            }
        }
        self.world.run_for(1_000);
    }

    /// Disconnects a client. A dead one sends nothing; one whose connection broke reports it and rejoins.
    fn leave(&mut self, index: usize, again: bool) {
        let mut program = self.programs.swap_remove(index);
        self.book.helped += program.client.helped();
        program.link.end(&mut self.world);
        self.host.lose(&mut self.world, &program.link);
        if !again {
            return;
        }
        program.client.give_up(remora_nic::Status::RetryExceeded);
        let now = self.world.now().0;
        while let Some(ended) = program.client.abandon() {
            note(&mut program.open, program.number, &ended, now, &mut self.book);
        }
        let joined =
            Program::join(&mut self.world, program.node, &mut self.host, &mut self.book, self.shaped.blind);
        self.programs.extend(joined);
    }

    fn has(&mut self, mishap: Mishap, name: &'static str, here: bool) -> bool {
        let now = here && self.plan.has(mishap);
        if now {
            self.fired.insert(name);
        }
        now
    }

    fn run(&mut self) {
        let lengths = self.random.between(50, 150) as usize;
        for step in 0..STEPS {
            // If tables grow, keys are added one after the other, so that they grow at all times.
            let Shaped { keys, tables, .. } = self.shaped;
            let came = FIRST + step as u64 * keys.saturating_sub(FIRST) / (STEPS as u64 * 3 / 4);
            self.step(if tables > 1 { came.min(keys) } else { keys });
            if self.has(Mishap::Death, "death", step % lengths == lengths - 1 && self.programs.len() > 4) {
                let index = self.random.below(self.programs.len() as u64) as usize;
                self.leave(index, false);
            }
            if self.has(Mishap::Partition, "partition", step == 60) {
                cut_off(&mut self.world, 0, CLIENTS + 1, true);
            }
            if step == 120 {
                cut_off(&mut self.world, 0, CLIENTS + 1, false);
            }
            if self.has(Mishap::Restart, "restart", step == 160) {
                self.restart(false);
            }
            if self.has(Mishap::Empty, "empty", step == 230) {
                self.restart(true);
            }
        }
        let links = self.world.faults();
        self.fired.extend((links.dropped > 0).then_some("loss"));
        self.fired.extend((links.reordered > 0).then_some("reordering"));
    }

    /// Restarts the server. If it restarts empty, it counts as a client that has deleted every key meanwhile.
    fn restart(&mut self, empty: bool) {
        self.cut_short += u32::from(self.growth.mover.is_busy());
        self.added = self.added();
        self.growth.end(&mut self.world);
        self.host.crash(&mut self.world);
        let table = self.shaped.table();
        let now = self.world.now().0;
        let wiper = self.book.clients;
        for key in (0..self.shaped.keys).filter(|_| empty) {
            self.book.history.invoke(wiper + key as u32, now, &[Step::Delete { key, found: None }]);
        }
        self.world.run_for(2_000);
        if empty {
            self.book.clients += self.shaped.keys as u32;
            self.host.restart_empty(&mut self.world, |memory| PrismTable::new(table, memory.clone()));
        } else {
            self.host.restart(&mut self.world, |memory| PrismTable::attach(table, memory.clone()));
        }
        self.growth = Growth::new(&mut self.world, &self.host, self.shaped.care);
        let now = self.world.now().0;
        for key in (0..self.shaped.keys).filter(|_| empty) {
            self.book.history.ok(wiper + key as u32, now, &[Step::Delete { key, found: None }]);
        }
        (0..self.programs.len()).rev().for_each(|index| self.leave(index, true));
    }

    /// Ends all operations, waits until the network is quiet, and accounts for every buffer.
    fn rest(&mut self, seed: u64) {
        self.asking = false;
        let capacity = 2 * self.shaped.buffers;
        let mut late = 0;
        for _ in 0..50_000 {
            self.step(0);
            late += usize::from(self.host.keeper.late().next().is_some());
            if late % 2000 == 1999 {
                self.host.lose_late(&mut self.world);
            }
            let quiet = self.programs.iter().all(|program| program.client.in_flight() == 0)
                && !self.growth.mover.is_busy();
            if quiet && self.host.buffers(&mut self.world).free + self.host.live() == capacity {
                break;
            }
        }
        let expected = Buffers { capacity, free: capacity - self.host.live(), bad_posts: 0 };
        assert_eq!(
            self.host.buffers(&mut self.world),
            expected,
            "seed {seed}, {:?}, in flight {:?}",
            self.host.keeper.stage(),
            self.programs.iter().map(|program| program.client.in_flight()).collect::<Vec<_>>()
        );
    }
}

/// Draws few slots, so that keys displace each other, and mostly enough buffers. Half of the tables grow.
fn drawn(seed: u64, blind: bool) -> Shaped {
    let mut random = Random::new(seed ^ 0x5eed);
    let keys = random.between(FIRST, 8);
    let buffers = if random.below(4) == 0 { 6 } else { 40 };
    let slots = keys + random.between(0, 4);
    let even = Shaped { keys, slots, tables: 1, care: MovePolicy::Proved, buffers, mix: [8, 8], blind };
    if seed.is_multiple_of(2) {
        return even;
    }
    let slots = random.between(3, 8);
    let tables = random.between(2, 4) as u32;
    Shaped { keys: keys + 4, slots, tables, ..even }
}

fn histories(seeds: std::ops::Range<u64>) {
    let count = (seeds.end - seeds.start) as usize;
    let mut measures = Measures::default();
    let mut refused = 0;
    let mut swept = 0;
    let mut tries = 0;
    let mut grown = [0; 5];
    let mut cut_short = 0;
    let mut helped = 0;
    let one = |seed| {
        let mut run = Run::new(seed, drawn(seed, false));
        run.run();
        run.rest(seed);
        remora_check::hold(&format!("prism-kv seed {seed}"), &run.book.history, remora_check::linearizable);
        let swept = run.host.keeper.counters().swept;
        let grew = (run.added(), run.cut_short);
        (run.book, run.fired, swept, grew)
    };
    seeds::each(seeds, one, |_, (book, fired, sweeps, (added, cut))| {
        grown[(added as usize).min(4)] += 1;
        cut_short += cut;
        helped += book.helped;
        measures.add(&book.history, &fired.iter().copied().collect::<Vec<_>>());
        refused += usize::from(book.refused > 0);
        tries += book.tries;
        swept += sweeps;
    });
    println!("{refused} runs out of buffers, {swept} buffers swept, {tries} looks again");
    measures.hold(&remora_check::Requirements {
        histories: count,
        clients: 8,
        keys: 16,
        overlapping: 0.3,
        faults: &["loss", "reordering", "death", "restart", "empty", "partition"],
        fired: 0.2,
    });
    assert!(refused > 0 && swept > 0 && tries > 0);
    println!("{grown:?} runs grew so often, {cut_short} moves were cut short, clients helped {helped} times");
    assert!(grown[1..].iter().sum::<usize>() * 5 >= count, "a fifth of the runs should grow");
    assert!(grown[2..].iter().all(|runs| *runs > 0) && cut_short > 0 && helped > 0);
}

/// Eight or more clients on at most twelve keys, with values of more than four MTUs; loss, reordering,
/// deaths, restarts with and without memory, and partitions. A fifth of the histories have tables that grow.
/// At the end, all buffers but those of live values are free.
#[test]
fn prism_kv_is_linearizable_and_no_buffer_is_lost() {
    histories(0..seeds::share(1000));
}

#[test]
#[ignore = "soak: hours"]
fn soak_ten_thousand_histories_of_prism_kv() {
    histories(1000..11_000);
}

/// Sixteen clients put and delete one key: most swaps fail, and each failed PUT has taken a buffer.
#[test]
fn buffers_of_those_who_lose_come_back() {
    let mut swaps = [0; 2];
    for seed in 0..20 {
        let mut run =
            Run::new(seed, Shaped { keys: 1, slots: 1, tables: 1, mix: [0, 10], ..drawn(seed, false) });
        run.run();
        run.rest(seed);
        swaps = [swaps[0] + run.book.swaps[0], swaps[1] + run.book.swaps[1]];
    }
    println!("{swaps:?} swaps that were made, and that were not");
    assert!(swaps[1] > swaps[0], "half of them should lose");
}

#[test]
fn a_store_that_does_not_look_at_generations_is_caught() {
    let caught = (0u64..100).find(|seed| {
        let mut run = Run::new(*seed, drawn(*seed, true));
        run.run();
        let judged = remora_check::linearizable(&run.book.history);
        judged.is_err_and(|violation| {
            println!("seed {seed}: {violation}");
            true
        })
    });
    assert!(caught.is_some(), "a hundred seeds of a broken store, and nothing seen");
}

#[test]
fn a_move_that_does_not_freeze_is_caught() {
    let caught = (0u64..100).find(|seed| {
        let mut run = Run::new(*seed, Shaped { care: MovePolicy::Unfrozen, ..drawn(2 * *seed + 1, false) });
        run.run();
        let judged = remora_check::linearizable(&run.book.history);
        judged.is_err_and(|violation| {
            println!("seed {seed}: {violation}");
            true
        })
    });
    assert!(caught.is_some(), "a hundred seeds of a careless mover, and nothing seen");
}
