//! The world: NICs with their memory, joined by links, and a time that jumps from one event to the next.

use std::sync::Arc;

use remora_memory::{Biased, Mem, Pd, Table};
use remora_nic::Nic;
use remora_nic::rma::Regions;
use remora_transport::Instant;
use remora_wire::frame::{Address, Endpoint, Ingress, Peer, Route, Start};

use crate::link::{LinkConfig, Links, Outlet, Sent};
use crate::program::Program;
use crate::switch::SwitchConfig;
use remora_fault::{Rules, Tally};

/// The configuration of a world.
#[derive(Clone, Debug)]
pub struct Config {
    /// Everything random comes from this.
    pub seed: u64,
    /// NICs: 2 or more.
    pub nodes: usize,
    /// Every link, in both directions.
    pub link: LinkConfig,
    /// All links that lead away from a node share its queue and its rate, as behind one port; else each has
    /// its own.
    pub shared_ports: bool,
    /// A switch between the links and the nodes.
    pub switch: Option<SwitchConfig>,
    /// What happens to frames.
    pub rules: Rules,
    /// Where frames begin.
    pub start: Start,
    /// IPv6 instead of IPv4.
    pub ipv6: bool,
    /// Configuration of every NIC.
    pub nic: remora_nic::Config,
    /// Every NIC's memory.
    pub memory: remora_memory::Config,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            seed: 0,
            nodes: 2,
            link: LinkConfig::default(),
            shared_ports: false,
            switch: None,
            rules: Rules::default(),
            start: Start::Ip,
            ipv6: false,
            nic: remora_nic::Config {
                max_qps: 64,
                max_cqs: 64,
                max_events: 256,
                ..remora_nic::Config::default()
            },
            memory: remora_memory::Config {
                max_regions: 1 << 10,
                max_ranges: 1 << 12,
                ..remora_memory::Config::default()
            },
        }
    }
}

/// One NIC, its memory, and the program that uses it.
pub(crate) struct Node {
    pub engine: Biased<Nic>,
    pub table: Arc<Table>,
    pub pd: Pd,
    pub endpoint: Endpoint,
    /// Regions of 1RMA, if it speaks that.
    pub regions: Option<Arc<Regions>>,
    pub program: Program,
    /// It has frames that its full links do not take.
    blocked: bool,
    /// A node with more work than fits into a moment, such as an endless chain, continues at this time.
    resumes: Instant,
}

/// A simulated world. A value like any other: two of them do not know of each other.
pub struct World {
    pub(crate) nodes: Vec<Node>,
    pub(crate) links: Links,
    now: Instant,
    /// Steps since time last moved.
    at_once: u32,
}

/// Steps in one instant after which only a NIC that never settles remains as an explanation.
const RESTLESS: u32 = 1_000_000;

/// UDP source port of node 0; the others follow.
const FIRST_PORT: u16 = 0xc000;

/// Frames that a NIC sends before the next one has its turn.
const BUDGET: usize = 64;
/// Turns of so many frames that a node has in one moment, and the pause behind them.
const ROUNDS: usize = 32;
const PAUSE_NS: u64 = 1000;

impl World {
    /// A world at time 0 in which nothing happens yet.
    ///
    /// # Panics
    /// If the configuration asks for more memory than the machine has.
    pub fn new(config: &Config) -> World {
        let node = |index: usize| {
            let table =
                remora_memory::Config { key_seed: config.seed ^ index as u64, ..config.memory.clone() };
            let table = Arc::new(Table::new(table).expect("memory for the regions' table"));
            let pd = table.alloc_pd().expect("the first protection domain");
            let address: Address = if config.ipv6 {
                std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, index as u16 + 1).into()
            } else {
                std::net::Ipv4Addr::new(10, 0, (index >> 8) as u8, index as u8 + 1).into()
            };
            let endpoint = Endpoint { address, udp_port: FIRST_PORT + index as u16 };
            Node {
                engine: Biased::new(&table, Nic::new(remora_nic::Config { endpoint, ..config.nic })),
                table,
                pd,
                endpoint,
                regions: None,
                program: Program::default(),
                blocked: false,
                resumes: Instant(0),
            }
        };
        let nodes: Vec<Node> = (0..config.nodes).map(node).collect();
        let endpoints = nodes.iter().map(|node| node.endpoint).collect();
        let links = Links::new(endpoints, config.start, config.link, &config.rules, config.seed);
        let links = if config.shared_ports { links.with_shared_ports(config.link) } else { links };
        World {
            nodes,
            links: match config.switch {
                Some(switch) => links.with_switch(switch, config.seed),
                None => links,
            },
            now: Instant(0),
            at_once: 0,
        }
    }

    /// The virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// A hash of every frame and its time so far.
    pub fn trace(&self) -> u64 {
        self.links.trace.get()
    }

    /// What the fault rules did so far, all links together.
    pub fn faults(&self) -> Tally {
        self.links.tally()
    }

    /// Frames that did not fit the switch's buffer on their way to `node`, and the most bytes that ever
    /// waited there.
    pub fn overflow(&self, node: usize) -> (u64, usize) {
        self.links.ports.get(node).map_or((0, 0), |port| (port.dropped, port.most))
    }

    /// Bytes that wait in the switch on their way to `node`, and how many frames it has marked there.
    pub fn queue(&mut self, node: usize) -> (usize, u64) {
        let now = self.now;
        self.links.ports.get_mut(node).map_or((0, 0), |port| (port.held(now), port.marked))
    }

    /// Other fault rules from now on.
    pub fn set_rules(&mut self, rules: &Rules, seed: u64) {
        self.links.set_rules(rules, seed);
    }

    /// Cuts or mends the link that leads from one node to another.
    pub fn cut(&mut self, from: usize, to: usize, cut: bool) {
        self.links.cut(from, to, cut);
    }

    /// Another rate of the link that leads from one node to another, bits in a second.
    pub fn set_rate(&mut self, from: usize, to: usize, rate: u64) {
        self.links.set_rate(from, to, rate);
    }

    /// Keeps a copy of every frame sent from now on, until they are taken by [`World::sent`].
    pub fn tap(&mut self) {
        self.links.tap.get_or_insert_default();
    }

    /// The frames sent since the tap was opened or last emptied.
    pub fn sent(&mut self) -> Vec<Sent> {
        self.links.tap.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Makes any frame arrive at node `to` a nanosecond from now, as if it came from `from`.
    pub fn inject(&mut self, from: usize, to: usize, bytes: &[u8]) {
        self.links.inject(self.now.after(1), from, to, bytes);
    }

    /// Where frames begin.
    pub fn start(&self) -> Start {
        self.links.start()
    }

    /// The headers on the way from one node to another.
    pub fn route(&self, from: usize, to: usize) -> Route {
        let mut destination = self.nodes[to].endpoint;
        if self.links.start() != Start::Bth {
            // A socket gets the frames for its own port. Where whole frames arrive, RoCE's port identifies
            // them.
            destination.udp_port = remora_wire::ROCE_PORT;
        }
        Route::new(self.nodes[from].endpoint, destination)
    }

    /// The port's name for a node.
    pub fn peer(&self, node: usize) -> Peer {
        Peer(node as u32)
    }

    /// The table of a node's memory.
    pub fn table(&self, node: usize) -> &Arc<Table> {
        &self.nodes[node].table
    }

    /// The protection domain in which a node's program works.
    pub fn pd(&self, node: usize) -> Pd {
        self.nodes[node].pd
    }

    /// Runs `work` with a node's NIC and the right to touch its memory.
    pub fn with_nic<R>(&mut self, node: usize, work: impl FnOnce(&mut Nic, Mem<'_>) -> R) -> R {
        let node = &mut self.nodes[node];
        // The buffer may have space now.
        node.blocked = false;
        let mut guard = node.engine.enter();
        let (nic, mem) = guard.parts();
        work(nic, mem)
    }

    /// What a node's NIC has counted.
    pub fn counters(&self, node: usize) -> remora_transport::Counters {
        *self.nodes[node].engine.enter().counters()
    }

    /// Time goes to the next event, which happens. Returns false if no further event can happen by itself.
    pub fn step(&mut self) -> bool {
        self.step_until(Instant::NEVER)
    }

    /// As [`World::step`], but time goes no further than `limit`, and false is returned when it gets there.
    pub fn step_until(&mut self, limit: Instant) -> bool {
        let next = self.next();
        if next == Instant::NEVER || next > limit {
            if limit != Instant::NEVER {
                self.now = self.now.max(limit);
            }
            return false;
        }
        self.at_once = if next > self.now { 0 } else { self.at_once + 1 };
        assert!(self.at_once < RESTLESS, "time stands still at {:?}", self.now);
        self.now = self.now.max(next);
        self.deliver();
        for node in 0..self.nodes.len() {
            self.run(node);
        }
        true
    }

    /// Lets `ns` nanoseconds pass.
    pub fn run_for(&mut self, ns: u64) {
        let limit = self.now.after(ns);
        while self.step_until(limit) {}
    }

    /// Steps until nothing happens any more; false if that takes more than `steps`.
    pub fn settle(&mut self, steps: usize) -> bool {
        (0..steps).any(|_| !self.step())
    }

    fn next(&self) -> Instant {
        let mut next = self.links.next_arrival();
        for (index, node) in self.nodes.iter().enumerate() {
            let nic = node.engine.enter();
            next = next.min(nic.next_deadline());
            if node.blocked {
                next = next.min(self.links.space_at(index, self.now));
            } else if nic.has_work() {
                next = next.min(node.resumes.max(self.now));
            }
        }
        next
    }

    fn deliver(&mut self) {
        let start = self.links.start();
        while let Some((flight, frame)) = self.links.arrived(self.now) {
            let source = self.nodes[flight.from as usize].endpoint;
            let ingress =
                Ingress { bytes: &frame, start, sealed: true, source, destination: None, origin: None };
            let mut guard = self.nodes[flight.to as usize].engine.enter();
            let (nic, mem) = guard.parts();
            nic.receive(self.now, mem, &ingress);
            drop(guard);
            self.links.give_back(flight, frame);
        }
    }

    fn run(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let mut guard = node.engine.enter();
        let (nic, mem) = guard.parts();
        if nic.next_deadline() <= self.now {
            // What has arrived by now has been delivered.
            nic.expire(self.now, self.now, BUDGET);
        }
        let mut outlet = Outlet::new(&mut self.links, self.now, index);
        let (mut sent, mut rounds) = (1, 0);
        while nic.has_work() && sent > 0 && rounds < ROUNDS {
            sent = nic.transmit(self.now, mem, &mut outlet, BUDGET);
            rounds += 1;
        }
        node.blocked = nic.has_work() && sent == 0;
        node.resumes = if rounds == ROUNDS { self.now.after(PAUSE_NS) } else { self.now };
    }
}
