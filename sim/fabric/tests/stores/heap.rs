//! Buffers of clients that link, unlink, fail, die and are disconnected. At the end every buffer to which the
//! table does not point is free.
//!
//! The store is the smallest one that uses buffers: slots that hold an address. An operation allocates a
//! buffer and swaps it in for the one that it expects in the slot. Half of the operations expect a wrong one.

use remora_fabric::{Config, Settings, World};
use remora_fault::Random;
use remora_nic::prism::{Address, Data, Mode, Operand, Operands, Operation, SCRATCH, Verdict, WorkRequest};
use remora_nic::{Flags, Payload, Remote, WorkCompletion};
use remora_store::heap::{Classes, Phase, Reachable, Returns};
use remora_store::{Broken, Post, PostPrism, Registered};

use crate::harness::{Buffers, Endpoint, Host, Link, Serves, Shape, arena, failed};
use crate::mishaps::{Mishap, Plan, Tally, cut_off};

const SLOTS: usize = 4;
const CLIENTS: usize = 8;
const SERVER: usize = CLIENTS;

/// The table: a list of addresses.
struct Slots(Registered);

impl Serves for Slots {}

impl Reachable for Slots {
    fn entries(&self) -> usize {
        SLOTS
    }

    fn buffers(&self, entry: usize, report: &mut dyn FnMut(u64)) {
        report(word(&self.0, entry * 8));
    }
}

fn word(block: &Registered, offset: usize) -> u64 {
    block.bytes.word(offset).expect("a word").load(std::sync::atomic::Ordering::Relaxed)
}

/// Ids of a client's requests.
const SWAP: u64 = 1;
const ALLOCATED: u64 = 2;
const RETURN: u64 = 3;
const LISTEN: u64 = 4;

/// Offsets of results in the arena, after the part that `Returns` needs.
const OLD: usize = Returns::ARENA.next_multiple_of(64);
const MINE: usize = OLD + 32;
const ARENA: usize = OLD + 64;

/// A client, with one operation at a time.
struct Client {
    node: usize,
    server: Registered,
    classes: Classes,
    arena: Registered,
    returns: Returns,
    link: Link,
    /// For each slot: the value that the client read last.
    seen: [u64; SLOTS],
    /// Slot and phase of the operation in progress, and the outcome of its comparison.
    open: Option<(usize, Phase, Option<Verdict>)>,
    left: usize,
}

impl Client {
    fn join(world: &mut World, node: usize, host: &mut Host<Slots>, left: usize) -> Option<Client> {
        let settings = Settings { prism: true, ..Settings::default() };
        let link = host.accept(world, node, &settings)?;
        let arena = arena(world, node, ARENA);
        let returns = Returns::new(arena.clone(), 0, 64);
        returns.listen(LISTEN, &mut Endpoint { world, qp: link.qp }).unwrap();
        let server = host.memory.clone();
        let classes = host.keeper.classes().clone();
        Some(Client { node, server, classes, arena, returns, link, seen: [0; SLOTS], open: None, left })
    }

    /// Posts the operation list: a buffer, its address to scratch memory and from there into the slot, then
    /// the address of the buffer that is not in the table.
    fn begin(&mut self, slot: usize, right: bool, nic: &mut impl PostPrism) -> Result<(), Broken> {
        let rkey = self.server.key;
        let expected = if right { self.seen[slot] } else { 1 };
        let request = |id, operation| WorkRequest {
            id,
            operation,
            conditional: false,
            redirect: None,
            result: None,
            flags: Flags::default(),
        };
        let signaled = Flags { signaled: true, ..Flags::default() };
        let class = &self.classes.all()[0];
        let value = [self.left as u8; 40];
        let data = Data::Local(Payload::Inline(&value));
        let allocate = Operation::Allocate { list: class.list, rkey, data };
        let operands = Operands {
            mode: Mode::Equal,
            size: 8,
            compare_mask: [u64::MAX, 0, 0, 0],
            swap_mask: [u64::MAX, 0, 0, 0],
            compare: Operand::Immediate([expected, 0, 0, 0]),
            swap_add: Operand::At(SCRATCH),
        };
        let remote = Remote { addr: self.server.addr + slot as u64 * 8, rkey };
        let swap = Operation::CompareSwap { at: Address::direct(remote), operands };
        let sge = |offset: usize| remora_nic::Sge {
            addr: self.arena.addr + offset as u64,
            len: 8,
            lkey: self.arena.key,
        };
        let mine = [sge(MINE)];
        let scratch = Address::direct(Remote { addr: SCRATCH, rkey });
        let allocated = Operation::Read { from: scratch, len: 8, into: &mine };
        let zero = Operation::Write { to: scratch, data: Data::Local(Payload::Inline(&[0; 8])) };
        self.open = Some((slot, self.returns.begin(), None));
        for request in [
            request(0, zero),
            WorkRequest { redirect: Some(SCRATCH), ..request(0, allocate) },
            WorkRequest { conditional: true, result: Some(sge(OLD)), flags: signaled, ..request(SWAP, swap) },
            WorkRequest { flags: signaled, ..request(ALLOCATED, allocated) },
        ] {
            nic.post_prism(&request)?;
        }
        Ok(())
    }

    /// Handles a completion.
    fn complete(&mut self, completion: &WorkCompletion, nic: &mut impl Post) -> Result<(), Broken> {
        if failed(completion) {
            return Err(Broken::Completion(completion.status));
        }
        match completion.id {
            SWAP => {
                let (_, _, ended) = self.open.as_mut().ok_or(Broken::Protocol)?;
                *ended = Some(completion.outcome);
            }
            ALLOCATED => {
                let (slot, phase, ended) = self.open.take().ok_or(Broken::Protocol)?;
                let old = word(&self.arena, OLD);
                let mine = word(&self.arena, MINE);
                let (lost, now) = match ended {
                    Some(Verdict::Done) => (old, mine),
                    Some(Verdict::NotSwapped) => (mine, old),
                    // There was no buffer, and so no comparison.
                    _ => (0, self.seen[slot]),
                };
                self.seen[slot] = now;
                if lost != 0 {
                    self.returns.give(lost);
                }
                self.returns.end(phase);
            }
            RETURN => self.returns.sent(),
            _ => self.returns.received(completion.byte_len, LISTEN, nic)?,
        }
        Ok(())
    }

    /// Gives the client's program a turn.
    fn turn(&mut self, world: &mut World, random: &mut Random) -> Result<(), Broken> {
        while let Some(completion) = self.link.poll(world) {
            self.complete(&completion, &mut Endpoint { world, qp: self.link.qp })?;
        }
        let mut nic = Endpoint { world, qp: self.link.qp };
        if self.open.is_none() && self.left > 0 && self.returns.space() > 1 {
            self.left -= 1;
            let slot = random.below(SLOTS as u64) as usize;
            self.begin(slot, random.below(2) == 0, &mut nic)?;
        }
        self.returns.send(RETURN, self.left == 0, &mut nic)?;
        Ok(())
    }
}

struct Run {
    world: World,
    random: Random,
    plan: Plan,
    host: Host<Slots>,
    clients: Vec<Client>,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut random = Random::new(seed);
        let plan = Plan::draw(&mut random);
        let nic = remora_nic::Config { max_qps: 256, max_cqs: 256, ..Config::default().nic };
        let mut world = World::new(&Config { seed, nodes: CLIENTS + 1, nic, ..Config::default() });
        world.set_rules(&plan.rules(), seed);
        let shape = Shape { table_len: SLOTS * 8, classes: vec![(64, 24)], peers: CLIENTS as u32 };
        let mut host = Host::open(&mut world, SERVER, shape, |memory| Slots(memory.clone()));
        let clients =
            (0..CLIENTS).map(|node| Client::join(&mut world, node, &mut host, 40).unwrap()).collect();
        Run { world, random, plan, host, clients }
    }

    /// Gives all clients a turn and advances the time a little.
    fn step(&mut self) {
        self.host.turn(&mut self.world);
        for index in (0..self.clients.len()).rev() {
            if self.clients[index].turn(&mut self.world, &mut self.random).is_err() {
                self.leave(index, true);
            }
        }
        let limit = self.world.now().after(2_000);
        self.world.step_until(limit);
    }

    /// Disconnects a client. A dead client is reported to the server; one whose connection broke rejoins.
    fn leave(&mut self, index: usize, again: bool) {
        let client = self.clients.swap_remove(index);
        client.link.end(&mut self.world);
        self.host.lose(&mut self.world, &client.link);
        if again {
            self.clients.extend(Client::join(&mut self.world, client.node, &mut self.host, client.left));
        }
    }

    fn run(&mut self, tally: &mut Tally) {
        for step in 0..600 {
            self.step();
            let now = self.random.below(150) == 0;
            if self.plan.has(Mishap::Death) && now && self.clients.len() > 2 {
                let index = self.random.below(self.clients.len() as u64) as usize;
                self.leave(index, false);
                tally.fired(Mishap::Death);
            }
            if self.plan.has(Mishap::Partition) && step == 200 {
                cut_off(&mut self.world, 0, CLIENTS + 1, true);
                tally.fired(Mishap::Partition);
            }
            if self.plan.has(Mishap::Restart) && step == 300 {
                self.restart();
                tally.fired(Mishap::Restart);
            }
        }
        cut_off(&mut self.world, 0, CLIENTS + 1, false);
    }

    fn restart(&mut self) {
        self.host.crash(&mut self.world);
        self.host.restart(&mut self.world, |memory| Slots(memory.clone()));
        (0..self.clients.len()).rev().for_each(|index| self.leave(index, true));
    }

    /// Ends all operations and waits until the network is quiet.
    fn rest(&mut self) -> Buffers {
        for _ in 0..100_000 {
            self.step();
            let quiet = self.clients.iter().all(|client| client.left == 0 && client.open.is_none());
            if quiet && self.host.buffers(&mut self.world).free + self.host.live() == 24 {
                break;
            }
        }
        self.host.buffers(&mut self.world)
    }
}

#[test]
fn free_buffers_are_all_but_the_live_ones_whoever_loses_and_whoever_dies() {
    let mut tally = Tally::default();
    let mut swept = 0;
    for seed in 0..100 {
        let mut run = Run::new(seed);
        run.run(&mut tally);
        let buffers = run.rest();
        let expected = Buffers { capacity: 24, free: 24 - run.host.live(), bad_posts: 0 };
        assert_eq!(buffers, expected, "seed {seed}, {:?}", run.host.keeper.stage());
        swept += run.host.keeper.counters().swept;
        tally.run_over(&run.world);
    }
    tally.check(&[Mishap::Loss, Mishap::Reordering, Mishap::Death, Mishap::Restart, Mishap::Partition]);
    assert!(swept > 0, "sweeps found {swept} buffers");
}
