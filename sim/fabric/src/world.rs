//! The world: NICs with their memory, joined by links, and a time that jumps from one event to the next.
//!
//! A node runs when something of its own is due: a frame has arrived, a link has space again, a timer of its
//! NIC expires, or its program has used the NIC. One that has frames for a full link tries again whenever
//! anything happens, as an engine that polls does: the NIC's turns count such attempts.

mod links;
mod outlet;
mod pairs;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use remora_memory::{Biased, Mem, Pd, Table};
use remora_nic::Nic;
use remora_nic::rma::Regions;
use remora_transport::Instant;
use remora_wire::frame::{Address, Endpoint, Ingress, Peer, Route, Start};

use crate::engine::Picos;
use crate::network::{Due, PacketId};
use crate::program::Program;
use remora_fault::{Rules, Tally};

pub use links::{LinkConfig, Sent, SwitchConfig};

use links::Links;
use outlet::Outlet;

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
    /// its own. With a switch they always do.
    pub shared_ports: bool,
    /// A switch between the links and the nodes, with a port for each node.
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
    /// When it runs next by itself.
    due: Instant,
    /// It has frames that its full links do not take.
    blocked: bool,
    /// A node with more work than fits into a moment, such as an endless chain, continues at this time.
    resumes: Instant,
}

impl Node {
    /// When it runs next by itself: at once, if its NIC has work that may leave, or when a timer expires.
    fn plan(&mut self, now: Instant) {
        let nic = self.engine.enter();
        let works = if nic.has_work() && !self.blocked { self.resumes.max(now) } else { Instant::NEVER };
        self.due = works.min(nic.next_deadline());
    }
}

/// A simulated world. A value like any other: two of them do not know of each other.
pub struct World {
    pub(crate) nodes: Vec<Node>,
    links: Links,
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
                due: Instant::NEVER,
                blocked: false,
                resumes: Instant(0),
            }
        };
        let nodes: Vec<Node> = (0..config.nodes).map(node).collect();
        let endpoints = nodes.iter().map(|node| node.endpoint).collect();
        World { nodes, links: Links::new(config, endpoints), at_once: 0 }
    }

    /// The virtual time.
    pub fn now(&self) -> Instant {
        self.links.network.now().instant()
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
        self.links.switch_port(node).map_or((0, 0), |port| (port.lost, port.most_queued as usize))
    }

    /// Bytes that wait in the switch on their way to `node`, and how many frames it has marked there.
    pub fn queue(&self, node: usize) -> (usize, u64) {
        self.links.switch_port(node).map_or((0, 0), |port| (port.queued as usize, port.marked))
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
        self.links.inject(self.now().after(1), from, to, bytes);
    }

    /// Where frames begin.
    pub fn start(&self) -> Start {
        self.links.start
    }

    /// The headers on the way from one node to another.
    pub fn route(&self, from: usize, to: usize) -> Route {
        let mut destination = self.nodes[to].endpoint;
        if self.links.start != Start::Bth {
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
        let now = self.now();
        let node = &mut self.nodes[node];
        let mut guard = node.engine.enter();
        let (nic, mem) = guard.parts();
        let done = work(nic, mem);
        drop(guard);
        // What it has now may go to another link than what waits.
        node.blocked = false;
        node.plan(now);
        done
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
        let (before, own) = (self.now(), self.nodes.iter().map(|node| node.due).min());
        let own = own.unwrap_or(Instant::NEVER);
        if !self.happens(own.min(limit)) && (own == Instant::NEVER || own > limit) {
            return false;
        }
        self.at_once = if self.now() > before { 0 } else { self.at_once + 1 };
        assert!(self.at_once < RESTLESS, "time stands still at {:?}", self.now());
        for node in 0..self.nodes.len() {
            if self.nodes[node].blocked || self.nodes[node].due <= self.now() {
                self.run(node);
            }
        }
        true
    }

    /// Lets `ns` nanoseconds pass.
    pub fn run_for(&mut self, ns: u64) {
        let limit = self.now().after(ns);
        while self.step_until(limit) {}
    }

    /// Steps until nothing happens any more; false if that takes more than `steps`.
    pub fn settle(&mut self, steps: usize) -> bool {
        (0..steps).any(|_| !self.step())
    }

    /// Time goes to the first moment until `limit` in which the network does something that concerns a node,
    /// and all of that moment is done; or to `limit`. Returns whether there was such a moment.
    fn happens(&mut self, limit: Instant) -> bool {
        while let Some(due) = self.links.network.next_due(Picos::from(limit)) {
            if !self.heed(due) {
                continue;
            }
            let now = self.links.network.now();
            while let Some(due) = self.links.network.next_due(now) {
                self.heed(due);
            }
            return true;
        }
        false
    }

    /// A node is due if this concerns it. Returns whether it does.
    fn heed(&mut self, due: Due) -> bool {
        let now = self.now();
        match due {
            Due::Arrived(node, packet) => self.deliver(node as usize, packet),
            Due::Free(node) if !self.nodes[node as usize].blocked => return false,
            // The tap sees frames where they leave a NIC.
            Due::Observed => return false,
            Due::Free(node) | Due::Wake(node) => self.nodes[node as usize].due = now,
        }
        true
    }

    fn deliver(&mut self, to: usize, id: PacketId) {
        let (now, start) = (self.now(), self.links.start);
        let (packet, bytes) = self.links.open(id);
        let source = self.nodes[packet.hash as usize].endpoint;
        let ingress = Ingress { bytes, start, sealed: true, source, destination: None, origin: None };
        let node = &mut self.nodes[to];
        let mut guard = node.engine.enter();
        let (nic, mem) = guard.parts();
        nic.receive(now, mem, &ingress);
        drop(guard);
        node.due = now;
        self.links.close(id, &packet);
    }

    fn run(&mut self, index: usize) {
        let now = self.now();
        let node = &mut self.nodes[index];
        let mut guard = node.engine.enter();
        let (nic, mem) = guard.parts();
        if nic.next_deadline() <= now {
            // What has arrived by now has been delivered.
            nic.expire(now, now, BUDGET);
        }
        let mut outlet = Outlet::new(&mut self.links, index);
        let (mut sent, mut rounds) = (1, 0);
        while nic.has_work() && sent > 0 && rounds < ROUNDS {
            sent = nic.transmit(now, mem, &mut outlet, BUDGET);
            rounds += 1;
        }
        node.blocked = nic.has_work() && sent == 0;
        drop(guard);
        node.resumes = if rounds == ROUNDS { now.after(PAUSE_NS) } else { now };
        node.plan(now);
    }
}
