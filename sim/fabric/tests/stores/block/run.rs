//! A run of a seed: three replicas, eight clients, and mishaps.

use remora_check::{History, Step, identify, stamp};
use remora_fabric::{Config, Settings, World};
use remora_fault::Random;
use remora_fault::{Action, Rule, Rules};
use remora_store::Connections;
use remora_store::block::{Canary, ClientConfig, ClientId, Grant, Layout, Operation, Outcome, Slot, Tag};

use super::design::{Copied, Design};
use crate::harness::{Buffers, Endpoint, Host, Link, arena};
use crate::mishaps::{Mishap, Plan, Tally, cut_off};

pub(crate) const REPLICAS: usize = 3;
const CLIENTS: usize = 8;
pub(crate) const NODES: usize = REPLICAS + CLIENTS;
const WINDOW: u16 = 2;
const KEYS: u64 = 4;
/// Blocks of more than four full packets.
pub(crate) const LAYOUT: Layout = Layout { blocks: KEYS, block_len: 1024 };
/// Number of clients that die in a run with a deliberate bug.
const DEATHS: u32 = 10;
/// Operations per client.
const OPERATIONS: u32 = 14;
/// Connections to a replica at the same time: the server notices a dead client late.
const PEERS: u32 = 2 * CLIENTS as u32;

fn settings() -> Settings {
    // A lost connection is detected after half a millisecond.
    Settings { mtu: 256, prism: true, timeout: 4, retry_cnt: 5, send_slots: 256, ..Settings::default() }
}

/// The queue pairs of a client; `None` for a replica without a connection.
pub(crate) struct Endpoints<'a> {
    pub world: &'a mut World,
    pub links: &'a [Option<Link>],
}

impl Connections for Endpoints<'_> {
    type Endpoint<'a>
        = Endpoint<'a>
    where
        Self: 'a;

    fn endpoint(&mut self, server: usize) -> Endpoint<'_> {
        let link = self.links[server].expect("the machine knows who is there");
        Endpoint { world: self.world, qp: link.qp }
    }
}

/// Grant of a replica, and the replica's number of restarts at that time.
type Granted = (Grant, u32);

/// A client process.
struct Client<D> {
    node: usize,
    machine: D,
    links: [Option<Link>; REPLICAS],
    grants: [Option<Granted>; REPLICAS],
    /// Number of the client's slot 0 in the history.
    number: u32,
    left: u32,
    /// For each slot: the value that it writes.
    values: Vec<u64>,
}

impl<D: Design> Client<D> {
    fn new(world: &mut World, node: usize, incarnation: u32, left: u32, canary: Canary) -> Client<D> {
        let id = ClientId::new(incarnation).expect("few clients");
        let config = ClientConfig { id, replicas: REPLICAS, layout: LAYOUT, window: WINDOW, canary };
        let arena = arena(world, node, D::arena_len(&config));
        let machine = D::client(config, arena);
        let number = incarnation * config.slots() as u32;
        let links = [None; REPLICAS];
        let grants = [None; REPLICAS];
        let values = vec![0; config.slots()];
        Client { node, machine, links, grants, number, left, values }
    }

    fn begin(&mut self, world: &mut World, history: &mut History, random: &mut Random, serial: &mut u64) {
        let now = world.now();
        let block = random.below(KEYS);
        let writes = random.below(2) == 0;
        let mut value = [0; LAYOUT.block_len as usize];
        *serial += 1;
        stamp(*serial, &mut value);
        let mut ends = Endpoints { world, links: &self.links };
        let slot = if writes {
            self.machine.write(now, block, &value, &mut ends)
        } else {
            self.machine.read(now, block, &mut ends)
        };
        // Slow replicas may keep finished slots occupied.
        let Ok(slot) = slot.map(Slot::index) else { return };
        self.left -= 1;
        self.values[slot] = *serial;
        let step = if writes {
            Step::Write { key: block, value: *serial }
        } else {
            Step::Read { key: block, value: None }
        };
        history.invoke(self.number + slot as u32, now.0, &[step]);
    }

    /// Gives the client's program a turn.
    fn turn(&mut self, world: &mut World, history: &mut History) {
        let now = world.now();
        for replica in 0..REPLICAS {
            while let Some(completion) = self.links[replica].and_then(|link| link.poll(world)) {
                let mut ends = Endpoints { world, links: &self.links };
                let Some(ended) = self.machine.complete(now, replica, &completion, &mut ends) else {
                    continue;
                };
                let client = self.number + ended.slot.index() as u32;
                let key = ended.block;
                match (ended.operation, ended.outcome) {
                    (Operation::Read, Outcome::Value(value)) => {
                        let value = (ended.tag != Tag::NEVER).then(|| identify(value));
                        history.ok(client, now.0, &[Step::Read { key, value }]);
                    }
                    (Operation::Write, Outcome::Done) => {
                        let value = self.values[ended.slot.index()];
                        history.ok(client, now.0, &[Step::Write { key, value }]);
                    }
                    (_, outcome) => panic!("{outcome:?}"),
                }
            }
        }
        self.machine.expire(now, &mut Endpoints { world, links: &self.links });
    }
}

pub(crate) struct Run<D: Design> {
    pub world: World,
    pub history: History,
    random: Random,
    plan: Plan,
    canary: Canary,
    hosts: Vec<Host<D::Table>>,
    clients: Vec<Client<D>>,
    incarnations: u32,
    serial: u64,
}

impl<D: Design> Run<D> {
    pub(crate) fn new(seed: u64, canary: Canary) -> Run<D> {
        let mut random = Random::new(seed);
        // A run with a deliberate bug makes its effect likely: a client dies during an operation, and
        // replicas receive a write at different times.
        let drawn = Plan::draw(&mut random);
        let plan = if canary == Canary::Sound { drawn } else { drawn.with(Mishap::Death) };
        let lossy = Rules::of(vec![Rule::chance(Action::Drop, 0.1)]);
        let rules = if canary == Canary::Sound { plan.rules() } else { lossy };
        let nic = remora_nic::Config { max_qps: 512, max_cqs: 512, ..Config::default().nic };
        let mut world = World::new(&Config { seed, nodes: NODES, nic, ..Config::default() });
        world.set_rules(&rules, seed);
        let open = |world: &mut World, node| {
            let shape = D::shape(LAYOUT, PEERS, WINDOW);
            Host::open(world, node, shape, |memory| D::table(LAYOUT, memory, &[]))
        };
        let hosts = (0..REPLICAS).map(|node| open(&mut world, node)).collect();
        let history = History::default();
        let mut run = Run {
            world,
            history,
            random,
            plan,
            canary,
            hosts,
            clients: Vec::new(),
            incarnations: 0,
            serial: 0,
        };
        (REPLICAS..NODES).for_each(|node| run.enter(node, OPERATIONS));
        run
    }

    /// Starts a client.
    fn enter(&mut self, node: usize, left: u32) {
        self.incarnations += 1;
        self.clients.push(Client::new(&mut self.world, node, self.incarnations, left, self.canary));
    }

    /// Connects a client to all replicas that are up.
    fn connect(&mut self, index: usize) {
        for replica in 0..REPLICAS {
            let client = &mut self.clients[index];
            if client.links[replica].is_some() {
                continue;
            }
            let host = &mut self.hosts[replica];
            let Some(link) = host.accept(&mut self.world, client.node, &settings()) else { continue };
            client.links[replica] = Some(link);
            let mut ends = Endpoints { world: &mut self.world, links: &client.links };
            let grant = D::grant(host);
            client.grants[replica] = Some((grant, host.restarts));
            client.machine.connect(replica, grant, &mut ends).expect("a replica of this store");
        }
    }

    /// Ends the connections that a client can no longer use.
    fn drop_lost(&mut self, index: usize) {
        let now = self.world.now();
        while let Some(lost) = self.clients[index].machine.lost() {
            let client = &mut self.clients[index];
            if let Some(link) = client.links[lost.replica].take() {
                link.end(&mut self.world);
                ended::<D>(
                    &mut self.hosts[lost.replica],
                    &mut self.world,
                    &link,
                    client.grants[lost.replica],
                );
            }
            let mut ends = Endpoints { world: &mut self.world, links: &client.links };
            client.machine.disconnect(now, lost.replica, &mut ends);
        }
    }

    /// Gives all clients a turn and advances the time a little.
    fn step(&mut self) {
        self.hosts.iter_mut().for_each(|host| host.turn(&mut self.world));
        for index in 0..self.clients.len() {
            self.connect(index);
            let client = &mut self.clients[index];
            client.turn(&mut self.world, &mut self.history);
            if client.left > 0 && client.machine.in_flight() < WINDOW.into() && self.random.below(4) == 0 {
                client.begin(&mut self.world, &mut self.history, &mut self.random, &mut self.serial);
            }
            self.drop_lost(index);
        }
        let limit = self.world.now().after(1_000);
        self.world.step_until(limit);
    }

    fn left(&self) -> u32 {
        self.clients.iter().map(|client| client.left).sum()
    }

    /// Runs until only `left` operations remain to be started, or for `steps` steps.
    fn until(&mut self, left: u32, steps: u32) {
        for _ in 0..steps {
            if self.left() <= left {
                return;
            }
            self.step();
        }
    }

    /// Runs everything: each mishap happens after a part of the operations was started, at one replica at a
    /// time.
    pub(crate) fn run(&mut self, tally: &mut Tally) {
        let all = OPERATIONS * CLIENTS as u32;
        self.until(all * 5 / 6, 4_000);
        if self.plan.has(Mishap::Death) {
            let deaths = if self.canary == Canary::Sound { 1 } else { DEATHS };
            for _ in 0..deaths {
                self.kill();
                self.until(0, 10);
            }
            tally.fired(Mishap::Death);
        }
        self.until(all * 4 / 6, 4_000);
        if self.plan.has(Mishap::Restart) {
            let replica = self.any_replica();
            self.hosts[replica].crash(&mut self.world);
            self.until(all * 3 / 6, 1_500);
            self.hosts[replica].restart(&mut self.world, |memory| D::reopen(LAYOUT, memory));
            tally.fired(Mishap::Restart);
        }
        self.until(all * 3 / 6, 4_000);
        if self.plan.has(Mishap::Empty) {
            let replica = self.any_replica();
            self.hosts[replica].crash(&mut self.world);
            let steps = self.random.below(1_000) as u32;
            self.until(all * 2 / 6, steps);
            self.repair(replica);
            tally.fired(Mishap::Empty);
        }
        self.until(all * 2 / 6, 4_000);
        if self.plan.has(Mishap::Partition) {
            let node = self.random.below(NODES as u64) as usize;
            cut_off(&mut self.world, node, NODES, true);
            self.until(all / 6, 1_500);
            cut_off(&mut self.world, node, NODES, false);
            tally.fired(Mishap::Partition);
        }
        self.rest();
        tally.run_over(&self.world);
    }

    fn any_replica(&mut self) -> usize {
        self.random.below(REPLICAS as u64) as usize
    }

    /// Lets a client die; another one starts on its node. The replicas notice it one after the other.
    fn kill(&mut self) {
        let index = self.random.below(self.clients.len() as u64) as usize;
        let dead = self.clients.swap_remove(index);
        dead.links.iter().flatten().for_each(|link| link.end(&mut self.world));
        for (replica, link) in dead.links.iter().enumerate() {
            if let Some(link) = link {
                ended::<D>(&mut self.hosts[replica], &mut self.world, link, dead.grants[replica]);
            }
            (0..20).for_each(|_| self.step());
        }
        self.enter(dead.node, dead.left);
    }

    /// Repairs a replica that has lost its memory: the other replicas end all connections, then it reads each
    /// block from a quorum.
    fn repair(&mut self, replica: usize) {
        for index in 0..self.clients.len() {
            for (other, host) in self.hosts.iter_mut().enumerate().filter(|(other, _)| *other != replica) {
                let client = &self.clients[index];
                if let Some(link) = &client.links[other] {
                    ended::<D>(host, &mut self.world, link, client.grants[other]);
                }
            }
        }
        self.incarnations += 1;
        let mut reader: Client<D> = Client::new(&mut self.world, replica, self.incarnations, 0, self.canary);
        let mut copied: Vec<Copied> = Vec::new();
        let mut next: u64 = 0;
        for _ in 0..200_000 {
            if copied.len() == KEYS as usize {
                break;
            }
            self.clients.push(reader);
            let index = self.clients.len() - 1;
            self.step();
            self.connect(index);
            self.drop_lost(index);
            reader = self.clients.pop().expect("the reader");
            let now = self.world.now();
            while next < KEYS && reader.machine.in_flight() < WINDOW.into() {
                let mut ends = Endpoints { world: &mut self.world, links: &reader.links };
                if reader.machine.read(now, next, &mut ends).is_err() {
                    break;
                }
                next += 1;
            }
            reader.machine.expire(now, &mut Endpoints { world: &mut self.world, links: &reader.links });
            reader.copy(&mut self.world, &mut copied);
        }
        assert_eq!(copied.len(), KEYS as usize, "a quorum says what each block holds");
        reader.links.iter().flatten().for_each(|link| link.end(&mut self.world));
        for (other, link) in reader.links.iter().enumerate() {
            if let Some(link) = link {
                ended::<D>(&mut self.hosts[other], &mut self.world, link, reader.grants[other]);
            }
        }
        self.hosts[replica].restart_empty(&mut self.world, |memory| D::table(LAYOUT, memory, &copied));
    }

    /// Ends all operations and delayed requests. Then a buffer must be free exactly if no table points to it.
    fn rest(&mut self) {
        for _ in 0..60_000 {
            self.step();
            let quiet = self.clients.iter().all(|client| client.left == 0 && client.machine.is_quiet());
            if quiet && (0..REPLICAS).all(|replica| self.buffers(replica).0) {
                return;
            }
        }
        let open: Vec<_> = self
            .clients
            .iter()
            .map(|client| (client.machine.in_flight(), client.machine.is_quiet()))
            .collect();
        let stages: Vec<_> = self.hosts.iter().map(|host| host.keeper.stage()).collect();
        let buffers: Vec<_> = (0..REPLICAS).map(|replica| self.buffers(replica)).collect();
        let left = self.left();
        let plan = self.plan;
        panic!("it never rests: {open:?} in flight, {left} to begin, {buffers:?}, {stages:?}, {plan:?}");
    }

    /// Returns whether a replica's buffers are where they belong, and their counts.
    fn buffers(&mut self, replica: usize) -> (bool, Buffers, u32) {
        let host = &self.hosts[replica];
        let buffers = host.buffers(&mut self.world);
        let live = host.live();
        (buffers.free + live == buffers.capacity && buffers.bad_posts == 0, buffers, live)
    }
}

impl<D: Design> Client<D> {
    /// Collects the blocks that were read for a repair.
    fn copy(&mut self, world: &mut World, copied: &mut Vec<Copied>) {
        let now = world.now();
        for replica in 0..REPLICAS {
            while let Some(completion) = self.links[replica].and_then(|link| link.poll(world)) {
                let mut ends = Endpoints { world, links: &self.links };
                if let Some(ended) = self.machine.complete(now, replica, &completion, &mut ends) {
                    let Outcome::Value(value) = ended.outcome else { panic!("a value") };
                    copied.push((ended.block, ended.tag, value.to_vec()));
                }
            }
        }
    }
}

/// Ends a connection and its lease at a replica, unless the replica has restarted since: then another client
/// has the same lease.
fn ended<D: Design>(host: &mut Host<D::Table>, world: &mut World, link: &Link, grant: Option<Granted>) {
    host.lose(world, link);
    if let Some((grant, restarts)) = grant
        && restarts == host.restarts
    {
        D::ended(host, &grant);
    }
}
