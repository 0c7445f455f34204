//! Worlds: NICs with their memory, joined by links, in a time that jumps from event to event.
//!
//! A node runs when one of its events is due: a frame has arrived, a link has space again, a timer of its NIC
//! expires, or its program has used the NIC. A node with frames for a full link retries at every event of the
//! world, as an engine that polls does, because the NIC counts such attempts.

mod config;
mod device;
mod links;
mod outlet;
mod pairs;
#[cfg(test)]
mod tests;

pub use config::{Config, LinkConfig, SwitchConfig};

use std::sync::Arc;

use remora_memory::{Biased, Mem, Pd, Table};
use remora_nic::rma::Regions;
use remora_nic::{Command, CommandError, FromReply, HandedPart, Nic, NicError, PartNumber, Reply};
use remora_transport::Instant;
use remora_wire::frame::{Address, Endpoint, Ingress, Peer, Route, Start};

use crate::engine::Picos;
use crate::network::{Due, PacketId};
use crate::program::Program;
use remora_fault::{Rules, Tally};

pub use device::Simulated;
pub use links::Sent;

use links::Links;
use outlet::Outlet;

/// A NIC with its memory, and the program that uses it.
pub(crate) struct Node {
    pub engine: Biased<Nic>,
    pub table: Arc<Table>,
    pub pd: Pd,
    pub endpoint: Endpoint,
    /// Region table of 1RMA, if 1RMA is enabled.
    pub regions: Option<Arc<Regions>>,
    pub program: Program,
    /// Time at which the node runs next.
    due: Instant,
    /// True if the node has frames that its full links do not accept.
    blocked: bool,
    /// Time at which a node continues that had more work than fits into one instant, such as an endless
    /// chain.
    resumes: Instant,
}

impl Node {
    /// Computes the time at which the node runs next: at once if its NIC has work that may leave, otherwise
    /// when a timer expires.
    fn plan(&mut self, now: Instant) {
        let nic = self.engine.enter();
        let works = if nic.has_work() && !self.blocked { self.resumes.max(now) } else { Instant::NEVER };
        self.due = works.min(nic.next_deadline());
    }
}

/// A simulated world. Several worlds are independent of each other.
pub struct World {
    pub(crate) nodes: Vec<Node>,
    links: Links,
    /// Number of steps since the time last advanced.
    at_once: u32,
}

/// Number of steps in one instant after which the only explanation is a NIC that never comes to rest.
const RESTLESS: u32 = 1_000_000;

/// UDP source port of node 0; the other nodes have the following ones.
const FIRST_PORT: u16 = 0xc000;

/// Number of frames that a NIC sends before the next node has its turn.
const BUDGET: usize = 64;
/// Number of such turns of a node in one instant, and the pause after them.
const ROUNDS: usize = 32;
const PAUSE_NS: u64 = 1000;

impl World {
    /// Creates a world at time 0.
    ///
    /// # Panics
    /// Panics if there is not enough memory.
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

    /// Returns the virtual time.
    pub fn now(&self) -> Instant {
        self.links.network.now().instant()
    }

    /// Returns a hash of all frames and their times so far.
    pub fn trace(&self) -> u64 {
        self.links.trace.get()
    }

    /// Returns the effects of the fault rules so far, summed over all links.
    pub fn faults(&self) -> Tally {
        self.links.tally()
    }

    /// Returns the number of frames to `node` that the switch dropped, and the largest number of bytes that
    /// waited for `node`.
    pub fn overflow(&self, node: usize) -> (u64, usize) {
        self.links.switch_port(node).map_or((0, 0), |port| (port.lost, port.most_queued as usize))
    }

    /// Returns the number of bytes that wait in the switch for `node`, and the number of frames that were
    /// marked there.
    pub fn queue(&self, node: usize) -> (usize, u64) {
        self.links.switch_port(node).map_or((0, 0), |port| (port.queued as usize, port.marked))
    }

    /// Replaces the fault rules from now on.
    pub fn set_rules(&mut self, rules: &Rules, seed: u64) {
        self.links.set_rules(rules, seed);
    }

    /// Cuts or restores the link from one node to another.
    pub fn cut(&mut self, sender: usize, receiver: usize, cut: bool) {
        self.links.cut(sender, receiver, cut);
    }

    /// Changes the rate of the link from one node to another, in bit/s.
    pub fn set_rate(&mut self, sender: usize, receiver: usize, rate: u64) {
        self.links.set_rate(sender, receiver, rate);
    }

    /// Keeps a copy of every frame from now on, until [`World::sent`] returns it.
    pub fn tap(&mut self) {
        self.links.tap.get_or_insert_default();
    }

    /// Returns the frames since the call of [`World::tap`] or the last call of this function.
    pub fn sent(&mut self) -> Vec<Sent> {
        self.links.tap.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Makes a frame arrive at node `receiver` in a nanosecond, as if node `sender` had sent it.
    pub fn inject(&mut self, sender: usize, receiver: usize, bytes: &[u8]) {
        self.links.inject(self.now().after(1), sender, receiver, bytes);
    }

    /// Returns the first header of the frames.
    pub fn start(&self) -> Start {
        self.links.start
    }

    /// Returns the headers below the BTH for frames from one node to another.
    pub fn route(&self, sender: usize, receiver: usize) -> Route {
        let mut destination = self.nodes[receiver].endpoint;
        if self.links.start != Start::Bth {
            // With frames from the BTH on, the UDP port identifies the receiving socket. Otherwise RoCE's
            // port identifies the frames.
            destination.udp_port = remora_wire::ROCE_PORT;
        }
        Route::new(self.nodes[sender].endpoint, destination)
    }

    /// Returns the peer number of a node.
    pub fn peer(&self, node: usize) -> Peer {
        Peer(node as u32)
    }

    /// Returns the memory table of a node.
    pub fn table(&self, node: usize) -> &Arc<Table> {
        &self.nodes[node].table
    }

    /// Returns the protection domain of a node's program.
    pub fn pd(&self, node: usize) -> Pd {
        self.nodes[node].pd
    }

    /// Runs `work` with a node's NIC and access to its memory.
    pub fn with_nic<R>(&mut self, node: usize, work: impl FnOnce(&mut Nic, Mem<'_>) -> R) -> R {
        let now = self.now();
        let node = &mut self.nodes[node];
        let mut guard = node.engine.enter();
        let (nic, mem) = guard.parts();
        let done = work(nic, mem);
        drop(guard);
        // New work may be for another link than the one that is full.
        node.blocked = false;
        node.plan(now);
        done
    }

    /// Hands memory or code to a node's NIC and returns its number, which the next command names.
    pub fn hand(&mut self, node: usize, part: impl Into<HandedPart>) -> PartNumber {
        self.with_nic(node, |nic, _| nic.hand(part))
    }

    /// Executes a command on a node's NIC.
    ///
    /// # Errors
    /// Fails if the NIC refuses the command.
    pub fn execute(&mut self, node: usize, command: Command) -> Result<Reply, CommandError> {
        let now = self.now();
        self.with_nic(node, |nic, mem| nic.execute(now, mem, command))
    }

    /// Executes a command other than `ModifyQp` on a node's NIC and returns the value of its reply.
    ///
    /// # Errors
    /// Fails if the NIC refuses the command.
    ///
    /// # Panics
    /// Panics if the reply has a value of another type.
    pub fn ask<T: FromReply>(&mut self, node: usize, command: Command) -> Result<T, NicError> {
        match self.execute(node, command) {
            Ok(reply) => Ok(T::from_reply(reply).expect("the reply of this command")),
            Err(error) => Err(error.fault.nic().expect("the error of a resource")),
        }
    }

    /// Returns the counters of a node's NIC.
    pub fn counters(&self, node: usize) -> remora_transport::Counters {
        *self.nodes[node].engine.enter().counters()
    }

    /// Advances the time to the next event and handles it. Returns false if no event is left.
    pub fn step(&mut self) -> bool {
        self.step_until(Instant::NEVER)
    }

    /// Like [`World::step`], but advances no further than `limit`. Returns false when `limit` is reached.
    pub fn step_until(&mut self, limit: Instant) -> bool {
        let before = self.now();
        let own = self.nodes.iter().map(|node| node.due).min();
        let own = own.unwrap_or(Instant::NEVER);
        if !self.happens(own.min(limit)) && (own == Instant::NEVER || own > limit) {
            return false;
        }
        self.at_once = if self.now() > before { 0 } else { self.at_once + 1 };
        assert!(self.at_once < RESTLESS, "time has not advanced for {RESTLESS} steps at {:?}", self.now());
        for node in 0..self.nodes.len() {
            if self.nodes[node].blocked || self.nodes[node].due <= self.now() {
                self.run(node);
            }
        }
        true
    }

    /// Runs the world for `ns` nanoseconds.
    pub fn run_for(&mut self, ns: u64) {
        let limit = self.now().after(ns);
        while self.step_until(limit) {}
    }

    /// Runs the world until no event is left. Returns false if that takes more than `steps` steps.
    pub fn settle(&mut self, steps: usize) -> bool {
        (0..steps).any(|_| !self.step())
    }

    /// Advances to the first instant up to `limit` with an event for a node, and handles all events of that
    /// instant. Otherwise advances to `limit`. Returns true if there was such an instant.
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

    /// Handles an event. Returns true if a node must run.
    fn heed(&mut self, due: Due) -> bool {
        let now = self.now();
        match due {
            Due::Arrived(node, packet) => self.deliver(node as usize, packet),
            Due::Free(node) if !self.nodes[node as usize].blocked => return false,
            // The tap records frames when they leave a NIC.
            Due::Observed => return false,
            Due::Free(node) | Due::Wake(node) => self.nodes[node as usize].due = now,
        }
        true
    }

    fn deliver(&mut self, receiver: usize, id: PacketId) {
        let now = self.now();
        let start = self.links.start;
        let (packet, bytes) = self.links.open(id);
        let source = self.nodes[packet.hash as usize].endpoint;
        let ingress = Ingress { bytes, start, sealed: true, source, destination: None, origin: None };
        let node = &mut self.nodes[receiver];
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
            // All frames that have arrived by now were delivered before.
            nic.expire(now, now, BUDGET);
        }
        let mut outlet = Outlet::new(&mut self.links, index);
        let mut sent = 1;
        let mut rounds = 0;
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
