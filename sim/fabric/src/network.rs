//! The network between hosts: links, switches, pause frames, marks.
//!
//! A packet is a descriptor here; the bytes of its frame stay with the hosts. An event belongs to a port,
//! never to a packet that waits: the first packet on a link arrives, a port is free again, a pause ends.
//! Events of one time happen in the order of their ports and kinds alone, so the order does not depend on
//! history.

mod buffer;
mod failure;
mod flow_hash;
mod forwarding;
mod mark;
mod observe;
mod observed;
mod out_of_order;
mod packet;
mod pause;
mod pausing;
mod port;
mod port_id;
mod prefetch;
mod progress;
mod route;
mod switch;
mod voq;
mod watch;
mod wiring;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use remora_fault::Random;

use crate::engine::{Calendar, Event, Picos};
use crate::topology::{Routes, Topology, TopologyError};

pub use buffer::{Account, Admission, Buffer, BufferConfig, ConweaveConfig, SharedConfig, Thresholds};
pub use failure::Failure;
pub use flow_hash::{FlowKey, KeyedHash, flow_hash, mix};
pub use mark::{MarkConfig, Marks};
pub use observe::{Event as PortEvent, Observation};
pub use observed::Observe;
pub use packet::{Flags, Packet, PacketId, Packets};
pub use pause::{Lasts, PauseConfig, PauseFrame};
pub use port::{CLASSES, End, Port};
pub use port_id::PortId;
pub use route::{Balancing, path};
pub use voq::VOQ_PORTS_MAX;
pub use watch::{Amount, Balance, Cause, Finding, Findings, Totals};

use out_of_order::OutOfOrder;
use progress::Progress;
use switch::Switch;
use wiring::{Wiring, ends, share_out, too_many};

/// How a network behaves.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkConfig {
    /// Everything random comes from this.
    pub seed: u64,
    /// Every switch.
    pub buffer: BufferConfig,
    /// Pause frames; without them a switch loses what does not fit.
    pub pause: Option<PauseConfig>,
    /// Marks.
    pub marks: Option<MarkConfig>,
    /// Choice among equal paths.
    pub balancing: Balancing,
    /// Classes that go before all others at each port, a bit each. The highest goes first.
    pub urgent: u8,
    /// Picoseconds between two looks at what watches the network.
    pub watch_period: u64,
}

impl Default for NetworkConfig {
    /// FIFO switches with a megabyte a port; no pause, no marks.
    fn default() -> NetworkConfig {
        NetworkConfig {
            seed: 0,
            buffer: BufferConfig::Fifo { limit: 1 << 20, pause: None, per_port: false },
            pause: None,
            marks: None,
            balancing: Balancing::Flow,
            urgent: 0,
            watch_period: 1_000 * Picos::MICROSECOND,
        }
    }
}

/// Something that concerns a host, or whoever runs the network.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// A packet has arrived. Its table entry is to be given back by [`Network::take`].
    Arrived(u32, PacketId),
    /// A port of the host can send.
    Free(u32),
    /// A time that the host asked for.
    Wake(u32),
    /// Something was observed: [`Network::take_observations`].
    Observed,
}

/// Kinds of events. Their numbers order those of one entity at one time.
const ARRIVE: u32 = 0;
const REACT: u32 = 1;
const EXPIRE: u32 = 2;
const FREE: u32 = 3;
const REFRESH: u32 = 4;
const WAKE: u32 = 5;
const WATCH: u32 = 6;
const FAIL: u32 = 7;
const OUT_OF_ORDER: u32 = 8;
const KIND_BITS: u32 = 4;

/// A pause frame that takes effect later than it arrives.
type Reaction = (Picos, u32, u32);

/// Links, switches and the packets in them.
pub struct Network {
    config: NetworkConfig,
    now: Picos,
    calendar: Calendar,
    packets: Packets,
    ports: Vec<Port>,
    /// What came by each port, as the switch behind it accounts for it.
    accounts: Vec<Account>,
    /// The number of each port among those of its sender.
    numbers: Vec<u16>,
    /// Random numbers of each port: losses and marks.
    random: Vec<Random>,
    /// Probability that a link loses a packet, by port.
    loss: Vec<f64>,
    /// How likely marks are, by port; empty if nothing is marked.
    marks: Vec<Option<Marks>>,
    switches: Vec<Switch>,
    /// The ports by which each host sends.
    uplinks: Vec<Vec<PortId>>,
    /// The host or switch that a node is, and the node of each host.
    ends: Vec<End>,
    host_nodes: Vec<u32>,
    topology: Topology,
    routes: Routes,
    failures: Vec<Failure>,
    /// Of flows, where switches hash as another program does.
    keys: Vec<FlowKey>,
    reactions: BinaryHeap<Reverse<Reaction>>,
    out_of_order: OutOfOrder,
    progress: Progress,
    totals: Totals,
    findings: Findings,
    observes_pauses: bool,
    observations: Vec<Observation>,
}

/// Nodes that a descriptor can name.
const NODES_MAX: usize = 1 << 16;

impl Network {
    /// An idle network at time 0.
    ///
    /// # Errors
    /// What [`Topology::check`] refuses, and more nodes or ports than a network has.
    pub fn new(topology: Topology, config: NetworkConfig) -> Result<Network, TopologyError> {
        let routes = Routes::new(&topology, |_| true)?;
        if topology.nodes.len() > NODES_MAX {
            return Err(too_many("nodes", topology.nodes.len(), NODES_MAX));
        }
        let ends = ends(&topology);
        let Wiring { ports, of_node, numbers, loss } = Wiring::new(&topology, &ends);
        let (uplinks, switches) = share_out(&topology, &config, of_node, &ends)?;
        let stream = |port| Random::new(config.seed ^ (port as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let host_nodes: Vec<u32> = topology.hosts().collect();
        let mut network = Network {
            now: Picos(0),
            calendar: Calendar::new(),
            packets: Packets::default(),
            accounts: vec![Account::default(); ports.len()],
            random: (0..ports.len()).map(stream).collect(),
            progress: Progress::new(ports.len()),
            marks: config
                .marks
                .as_ref()
                .map_or(Vec::new(), |marks| ports.iter().map(|port| marks.of(port.rate)).collect()),
            numbers,
            loss,
            ports,
            switches,
            uplinks,
            ends,
            host_nodes,
            topology,
            routes,
            failures: Vec::new(),
            keys: Vec::new(),
            reactions: BinaryHeap::new(),
            out_of_order: OutOfOrder::default(),
            totals: Totals::default(),
            findings: Findings::default(),
            observes_pauses: false,
            observations: Vec::new(),
            config,
        };
        if network.config.pause.is_some() {
            network.at(Picos(network.config.watch_period), 0, WATCH);
        }
        Ok(network)
    }

    /// The time.
    #[inline]
    pub fn now(&self) -> Picos {
        self.now
    }

    /// Hosts.
    pub fn hosts(&self) -> usize {
        self.uplinks.len()
    }

    /// The node that a host is.
    pub fn node_of(&self, host: u32) -> u32 {
        self.host_nodes[host as usize]
    }

    /// The host that a node is; `None`: it is a switch, or there is none.
    pub fn host_at(&self, node: u32) -> Option<u32> {
        match self.ends.get(node as usize)? {
            End::Host(host) => Some(*host),
            End::Switch(_) => None,
        }
    }

    /// The ports by which a host sends.
    #[inline]
    pub fn uplinks(&self, host: u32) -> &[PortId] {
        &self.uplinks[host as usize]
    }

    /// The number of the port by which a host sends a flow to another one. `hash` is the flow's, and chooses
    /// among the ports that [`Routes`] has; without any the packets leave by port 0 and are lost behind it.
    pub fn uplink_to(&self, host: u32, destination: u32, hash: u32) -> usize {
        let ports = self.routes.ports(self.node_of(host), self.node_of(destination));
        ports.get(hash as usize % ports.len().max(1)).map_or(0, |port| usize::from(*port))
    }

    /// The hash by which a host chooses among its ports for packets with this hash.
    pub fn hash_at_host(&self, host: u32, hash: u32) -> u32 {
        let node = self.node_of(host);
        match self.config.balancing {
            Balancing::Keyed(keyed) => {
                let key = self.keys.get(hash as usize).copied().unwrap_or_default();
                keyed.of_host(key, node)
            }
            _ => mix(hash ^ mix(self.config.seed as u32 ^ mix(node + 1))),
        }
    }

    /// A port.
    pub fn port(&self, id: PortId) -> &Port {
        &self.ports[id.index()]
    }

    /// The numbers of all ports.
    pub fn port_ids(&self) -> impl Iterator<Item = PortId> + use<> {
        (0..self.ports.len() as u32).map(PortId)
    }

    /// All ports, by their numbers.
    pub fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// The port by this number among those of a node.
    pub fn port_of(&self, node: u32, number: u32) -> Option<PortId> {
        match self.ends.get(node as usize)? {
            End::Host(host) => self.uplinks[*host as usize].get(number as usize).copied(),
            End::Switch(switch) => self.switches[*switch as usize].ports.get(number as usize).copied(),
        }
    }

    /// The node that sends by a port, and the port's number among its ports.
    pub fn name_of(&self, id: PortId) -> (u32, u32) {
        let node = match self.ports[id.index()].from {
            End::Host(host) => self.host_nodes[host as usize],
            End::Switch(switch) => self.switches[switch as usize].node,
        };
        (node, u32::from(self.numbers[id.index()]))
    }

    /// Nodes and links.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What it did so far.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// What should not have happened.
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// Packets under way, and the most that there ever were.
    pub fn under_way(&self) -> (usize, usize) {
        (self.packets.live(), self.packets.most())
    }

    /// Times on all links are whole nanoseconds from now on, rounded down, as in ns-3.
    pub fn round_to_ns(&mut self) {
        self.ports.iter_mut().for_each(|port| port.whole_ns = true);
    }

    /// Another rate of a port, in bit/s, for packets that come to it from now on. 0: a packet takes no time.
    pub fn set_rate(&mut self, id: PortId, rate: u64) {
        self.ports[id.index()].set_rate(rate);
    }

    /// What arrives at a node takes so many picoseconds longer, as in a switch that looks at each packet.
    pub fn delay_arrivals(&mut self, node: u32, ps: u64) {
        for id in self.ports_of(node) {
            self.ports[id.reverse().index()].delay += ps;
        }
    }

    /// What leaves a node takes so many picoseconds longer.
    pub fn delay_departures(&mut self, node: u32, ps: u64) {
        for id in self.ports_of(node) {
            self.ports[id.index()].delay += ps;
        }
    }

    fn ports_of(&self, node: u32) -> Vec<PortId> {
        match self.ends[node as usize] {
            End::Host(host) => self.uplinks[host as usize].clone(),
            End::Switch(switch) => self.switches[switch as usize].ports.to_vec(),
        }
    }

    /// Sets the key of a flow, at the place of one that is not used any more or at a new one. Returns its
    /// number, which the flow's packets have as their hash.
    pub fn set_key(&mut self, place: Option<u32>, key: FlowKey) -> u32 {
        if let Some(place) = place {
            self.keys[place as usize] = key;
            return place;
        }
        self.keys.push(key);
        self.keys.len() as u32 - 1
    }

    /// The links that are down at some time, and when.
    pub fn set_failures(&mut self, failures: Vec<Failure>) {
        for (number, failure) in failures.iter().enumerate() {
            self.at(failure.at, number as u32, FAIL);
        }
        self.failures = failures;
    }

    /// A host wants to run at a time. More wishes than one are all granted.
    #[inline]
    pub fn wake(&mut self, host: u32, at: Picos) {
        let entity = self.ports.len() as u32 + host;
        self.at(at.max(self.now), entity, WAKE);
    }

    #[inline]
    fn at(&mut self, at: Picos, entity: u32, kind: u32) {
        self.calendar.push(Event { at, key: entity << KIND_BITS | kind });
    }

    /// The time of what happens next.
    pub fn next_time(&mut self) -> Picos {
        self.calendar.next_time()
    }

    /// What concerns a host next, not later than `limit`. Time goes there.
    #[inline]
    pub fn next_due(&mut self, limit: Picos) -> Option<Due> {
        while let Some(Event { at, key }) = self.calendar.pop(limit) {
            self.now = at;
            self.prefetch_soon();
            let entity = key >> KIND_BITS;
            let due = match key & ((1 << KIND_BITS) - 1) {
                ARRIVE => self.arrive(PortId(entity)),
                FREE => self.free(PortId(entity)),
                WAKE => Some(Due::Wake(entity - self.ports.len() as u32)),
                REACT => self.react(),
                EXPIRE => self.expire(PortId(entity)),
                REFRESH => self.refresh(PortId(entity)),
                WATCH => self.watch(),
                OUT_OF_ORDER => self.arrive_out_of_order(),
                _ => self.fail(entity),
            };
            if due.is_some() {
                return due;
            }
        }
        self.now = if limit == Picos::NEVER { self.now } else { self.now.max(limit) };
        None
    }

    /// A host sends a packet by one of its ports, which is free. Returns its place in tables beside this one.
    #[inline]
    pub fn send(&mut self, id: PortId, packet: Packet) -> PacketId {
        self.totals.sent.add(packet.charge);
        let (class, charge) = (packet.class, u32::from(packet.charge));
        let added = self.packets.add(packet);
        let port = &mut self.ports[id.index()];
        port.add(class, charge);
        self.packets.push(&mut port.queues[usize::from(class)].fifo, added);
        if port.busy_until <= self.now {
            self.transmit(id);
        } else {
            self.expect_free(id);
        }
        added
    }

    /// May a host send a packet of this class by a port now?
    #[inline]
    pub fn can_send(&self, id: PortId, class: u8) -> bool {
        let port = &self.ports[id.index()];
        port.busy_until <= self.now
            && (port.paused | port.waiting) & 1 << class == 0
            && port.control.is_empty()
    }

    /// The classes that a host cannot send by a port now, a bit each.
    pub fn stopped(&self, id: PortId) -> u8 {
        let port = &self.ports[id.index()];
        if port.busy_until > self.now || !port.control.is_empty() {
            u8::MAX
        } else {
            port.paused | port.waiting
        }
    }

    /// The host hears from a port that is busy when it can send again: [`Due::Free`].
    #[inline]
    pub fn expect_free(&mut self, id: PortId) {
        if self.ports[id.index()].busy_until > self.now {
            self.go_on_when_free(id);
        }
    }

    /// What waits for a port goes on when the packet that is leaving has left, and be it at once.
    #[inline]
    fn go_on_when_free(&mut self, id: PortId) {
        let port = &mut self.ports[id.index()];
        if !port.has_free_event {
            port.has_free_event = true;
            let at = port.busy_until;
            self.at(at, id.0, FREE);
        }
    }

    /// Takes a packet that has arrived out of the network.
    #[inline]
    pub fn take(&mut self, id: PacketId) -> Packet {
        let packet = self.packets[id];
        self.totals.arrived.add(packet.charge);
        self.packets.remove(id);
        packet
    }
}

#[cfg(test)]
mod tests;
