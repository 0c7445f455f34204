//! The network between hosts: links, switches, PFC and ECN.
//!
//! Packets are descriptors here; the bytes of the frames stay with the hosts. Every event belongs to a port
//! and never to a queued packet: the first packet on a link arrives, a port becomes free, a pause ends.
//! Events at the same time happen in the order of their ports and kinds, so the order does not depend on the
//! history of the run.

mod buffer;
mod event_set;
mod failing;
mod failure;
mod findings;
mod flow_hash;
mod forwarding;
mod lone_arrivals;
mod mark;
mod observation;
mod observing;
mod out_of_order;
mod packet;
mod pause_frame;
mod pfc;
mod port;
mod port_id;
mod prefetch;
mod route;
mod switch;
mod voq;
mod watchdog;
mod watching;
mod wiring;

use std::collections::BinaryHeap;

use remora_fault::Random;

use crate::engine::{Calendar, Event, Picos};
use crate::topology::{Routes, Topology, TopologyError};

pub use buffer::{Account, Admission, Buffer, BufferConfig, ConweaveConfig, SharedConfig, Thresholds};
pub use event_set::EventSet;
pub use failure::Failure;
pub use findings::{Amount, Balance, Cause, Finding, Findings, Totals};
pub use flow_hash::{FlowKey, KeyedHash, flow_hash, mix};
pub use mark::{MarkConfig, Marks};
pub use observation::{Event as PortEvent, Observation};
pub use packet::{Flags, Packet, PacketId, Packets};
pub use pause_frame::{Lasts, PauseConfig, PauseFrame};
pub use port::{CLASSES, End, Port};
pub use port_id::PortId;
pub use route::{Balancing, path};
pub use voq::VOQ_PORTS_MAX;

pub use config::NetworkConfig;
pub use due::Due;
use due::{ARRIVE, EXPIRE, FAIL, FREE, KIND_BITS, OUT_OF_ORDER, REACT, REFRESH, WAKE, WATCH};
use out_of_order::OutOfOrder;
pub use state::Network;
use watchdog::Watchdog;
use wiring::{Wiring, ends, share_out, too_many};

/// Largest number of nodes, which fits the 16 bits of [`Packet::destination`].
const NODES_MAX: usize = 1 << 16;

impl Network {
    /// Creates an idle network at time 0.
    ///
    /// # Errors
    /// Fails if [`Topology::check`] rejects the topology, or if there are more nodes or ports than a network
    /// supports.
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
            watchdog: Watchdog::new(ports.len()),
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
            network.schedule(Picos(network.config.watch_period), 0, WATCH);
        }
        Ok(network)
    }

    /// Returns the simulated time.
    #[inline]
    pub fn now(&self) -> Picos {
        self.now
    }

    /// Returns the number of hosts.
    pub fn hosts(&self) -> usize {
        self.uplinks.len()
    }

    /// Returns the node number of a host.
    pub fn node_of(&self, host: u32) -> u32 {
        self.host_nodes[host as usize]
    }

    /// Returns the number of the host at a node, or `None` if the node is a switch or does not exist.
    pub fn host_at(&self, node: u32) -> Option<u32> {
        match self.ends.get(node as usize)? {
            End::Host(host) => Some(*host),
            End::Switch(_) => None,
        }
    }

    /// Returns the ports by which a host sends.
    #[inline]
    pub fn uplinks(&self, host: u32) -> &[PortId] {
        &self.uplinks[host as usize]
    }

    /// Returns the number of the port by which a host sends a flow to another host. `hash` chooses among the
    /// ports on shortest paths. If there is no path, port 0 is returned; the packets are then lost at its far
    /// end.
    pub fn uplink_to(&self, host: u32, destination: u32, hash: u32) -> usize {
        let ports = self.routes.ports(self.node_of(host), self.node_of(destination));
        ports.get(hash as usize % ports.len().max(1)).map_or(0, |port| usize::from(*port))
    }

    /// Returns the hash by which a host with several links chooses its port for packets whose hash is `hash`.
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

    /// Returns the port with this id.
    pub fn port(&self, id: PortId) -> &Port {
        &self.ports[id.index()]
    }

    /// Returns the ids of all ports.
    pub fn port_ids(&self) -> impl Iterator<Item = PortId> + use<> {
        (0..self.ports.len() as u32).map(PortId)
    }

    /// Returns all ports, indexed by [`PortId::index`].
    pub fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// Returns the port with this number among the ports of a node, or `None` if there is none.
    pub fn port_of(&self, node: u32, number: u32) -> Option<PortId> {
        match self.ends.get(node as usize)? {
            End::Host(host) => self.uplinks[*host as usize].get(number as usize).copied(),
            End::Switch(switch) => self.switches[*switch as usize].ports.get(number as usize).copied(),
        }
    }

    /// Returns the node that sends by a port, and the number of the port at that node.
    pub fn name_of(&self, id: PortId) -> (u32, u32) {
        let node = match self.ports[id.index()].from {
            End::Host(host) => self.host_nodes[host as usize],
            End::Switch(switch) => self.switches[switch as usize].node,
        };
        (node, u32::from(self.numbers[id.index()]))
    }

    /// Returns the topology.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Returns the counters.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Returns the violated invariants.
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// Returns the number of packets in the network, and its maximum so far.
    pub fn under_way(&self) -> (usize, usize) {
        (self.packets.live(), self.packets.most())
    }

    /// Rounds all times on links down to whole nanoseconds from now on, as in ns-3.
    pub fn round_to_ns(&mut self) {
        self.ports.iter_mut().for_each(|port| port.whole_ns = true);
    }

    /// Changes the rate of a port, in bit/s, for packets that are queued from now on. At rate 0 a packet
    /// takes no time.
    pub fn set_rate(&mut self, id: PortId, rate: u64) {
        self.ports[id.index()].set_rate(rate);
    }

    /// Delays arrivals at a node by `ps` picoseconds: the latency of a switch.
    pub fn delay_arrivals(&mut self, node: u32, ps: u64) {
        for id in self.ports_of(node) {
            self.ports[id.reverse().index()].delay += ps;
        }
    }

    /// Delays departures from a node by `ps` picoseconds.
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

    /// Stores the key of a flow, at index `place` if given or at a new one. Returns the index, which the
    /// packets of the flow carry as their hash.
    pub fn set_key(&mut self, place: Option<u32>, key: FlowKey) -> u32 {
        if let Some(place) = place {
            self.keys[place as usize] = key;
            return place;
        }
        self.keys.push(key);
        self.keys.len() as u32 - 1
    }

    /// Sets the times at which links go down and come up.
    pub fn set_failures(&mut self, failures: Vec<Failure>) {
        for (number, failure) in failures.iter().enumerate() {
            self.schedule(failure.at, number as u32, FAIL);
        }
        self.failures = failures;
    }

    /// Schedules [`Due::Wake`] for a host. Several requests of a host are all granted.
    #[inline]
    pub fn wake(&mut self, host: u32, time: Picos) {
        let entity = self.ports.len() as u32 + host;
        self.schedule(time.max(self.now), entity, WAKE);
    }

    #[inline]
    fn schedule(&mut self, time: Picos, entity: u32, kind: u32) {
        self.calendar.push(Event { at: time, key: entity << KIND_BITS | kind });
    }

    /// Returns the time of the next event.
    pub fn next_time(&mut self) -> Picos {
        self.calendar.next_time()
    }

    /// Advances the time to the next event that a host must handle, but not beyond `limit`, and returns this
    /// event.
    #[inline]
    pub fn next_due(&mut self, limit: Picos) -> Option<Due> {
        while let Some(Event { at: time, key }) = self.calendar.pop(limit) {
            self.now = time;
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

    /// Sends a packet from a host by one of its ports. Returns the id of the packet, by which callers index
    /// their own tables.
    #[inline]
    pub fn send(&mut self, id: PortId, packet: Packet) -> PacketId {
        self.totals.sent.add(packet.charge);
        let class = packet.class;
        let charge = u32::from(packet.charge);
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

    /// Returns true if a host can send a packet of this class by a port now.
    #[inline]
    pub fn can_send(&self, id: PortId, class: u8) -> bool {
        let port = &self.ports[id.index()];
        port.busy_until <= self.now
            && (port.paused | port.waiting) & 1 << class == 0
            && port.control.is_empty()
    }

    /// Returns a mask of the classes that a host cannot send by a port now.
    pub fn stopped(&self, id: PortId) -> u8 {
        let port = &self.ports[id.index()];
        if port.busy_until > self.now || !port.control.is_empty() {
            u8::MAX
        } else {
            port.paused | port.waiting
        }
    }

    /// Requests [`Due::Free`] for the time at which a busy port can send again.
    #[inline]
    pub fn expect_free(&mut self, id: PortId) {
        if self.ports[id.index()].busy_until > self.now {
            self.go_on_when_free(id);
        }
    }

    /// Schedules the port's next transmission for the end of the current packet.
    #[inline]
    fn go_on_when_free(&mut self, id: PortId) {
        let port = &mut self.ports[id.index()];
        if !port.has_free_event {
            port.has_free_event = true;
            let end = port.busy_until;
            self.schedule(end, id.0, FREE);
        }
    }

    /// Removes a packet that has arrived and returns it.
    #[inline]
    pub fn take(&mut self, id: PacketId) -> Packet {
        let packet = self.packets[id];
        self.totals.arrived.add(packet.charge);
        self.packets.remove(id);
        packet
    }
}

mod config;
mod due;
mod state;
#[cfg(test)]
mod tests;
