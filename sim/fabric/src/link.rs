//! Links: frames between two NICs.
//!
//! A link goes one way. It takes a frame if its queue has space, and sends one after the other at its rate. A
//! latency later it delivers them, unless its fault rules say otherwise. Each link has a queue and a rate of
//! its own, or all links of a node share one, as behind a single port.

mod serializer;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use remora_transport::Instant;
use remora_wire::frame::{Class, Egress, Endpoint, Lease, Origin, Peer, Start};

use crate::switch::{self, Departure, Port, SwitchConfig};
use crate::trace::Trace;
use remora_fault::{Direction, Facts, Policy, Rules, Tally, Verdict};
use serializer::Serializer;

/// Latency, rate and queue of a link.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// From the last bit's departure to its arrival, nanoseconds.
    pub latency_ns: u64,
    /// Bits per second; 0: a frame takes no time.
    pub rate: u64,
    /// Frames that wait for their departure, at most.
    pub queue: usize,
}

impl Default for LinkConfig {
    /// A cable in a rack: 100 Gb/s, 1 µs.
    fn default() -> LinkConfig {
        LinkConfig { latency_ns: 1_000, rate: 100_000_000_000, queue: 64 }
    }
}

/// A frame as it left a NIC, for tests that look at frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// When it left the NIC.
    pub at: Instant,
    /// By which node.
    pub from: usize,
    /// To which node.
    pub to: usize,
    /// The bytes of the frame.
    pub bytes: Vec<u8>,
    /// What the fault rules did to it.
    pub verdict: Verdict,
}

struct Link {
    latency_ns: u64,
    policy: Policy,
    /// Verdicts of earlier rules.
    past: Tally,
    direction: Direction,
    cut: bool,
}

/// The rules of link `index`, with a random stream for each link.
fn policy(rules: &Rules, seed: u64, index: usize) -> Policy {
    let own = (index as u64 + 1).wrapping_mul(0x5851_f42d_4c95_7f2d);
    Policy::new(&Rules { seed: rules.seed ^ seed ^ own, ..rules.clone() })
}

/// A frame under way: ordered by arrival, then by departure.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FrameInFlight {
    pub at: Instant,
    number: u64,
    pub slot: u32,
    pub from: u32,
    pub to: u32,
    /// It arrives at the switch, not yet at its node.
    switched: bool,
}

/// All links of a world, each pair of nodes joined, and the frames on them.
pub(crate) struct Links {
    nodes: usize,
    /// The nodes' endpoints, for frames to an address.
    endpoints: Vec<Endpoint>,
    links: Vec<Link>,
    /// One for each link, or for each node.
    serializers: Vec<Serializer>,
    /// The switch's ports, one for each node, if there is a switch.
    pub ports: Vec<Port>,
    start: Start,
    frames: Vec<Vec<u8>>,
    free: Vec<u32>,
    flights: BinaryHeap<Reverse<FrameInFlight>>,
    number: u64,
    pub trace: Trace,
    pub tap: Option<Vec<Sent>>,
}

impl Links {
    pub fn new(
        endpoints: Vec<Endpoint>,
        start: Start,
        config: LinkConfig,
        rules: &Rules,
        seed: u64,
    ) -> Links {
        let nodes = endpoints.len();
        let link = |index: usize| {
            let (from, to) = (index / nodes, index % nodes);
            Link {
                latency_ns: config.latency_ns,
                policy: policy(rules, seed, index),
                past: Tally::default(),
                direction: if from < to { Direction::Send } else { Direction::Receive },
                cut: false,
            }
        };
        Links {
            nodes,
            endpoints,
            links: (0..nodes * nodes).map(link).collect(),
            serializers: (0..nodes * nodes).map(|_| Serializer::new(config)).collect(),
            ports: Vec::new(),
            start,
            frames: Vec::new(),
            free: Vec::new(),
            flights: BinaryHeap::new(),
            number: 0,
            trace: Trace::new(),
            tap: None,
        }
    }

    /// Puts a switch between the links and the nodes.
    pub fn with_switch(self, config: SwitchConfig, seed: u64) -> Links {
        let port = |node| Port::new(config, seed ^ (node as u64) << 32);
        Links { ports: (0..self.nodes).map(port).collect(), ..self }
    }

    /// All links of a node share one queue and one rate.
    pub fn with_shared_ports(self, config: LinkConfig) -> Links {
        Links { serializers: (0..self.nodes).map(|_| Serializer::new(config)).collect(), ..self }
    }

    fn has_shared_ports(&self) -> bool {
        self.serializers.len() < self.links.len()
    }

    /// Those of a node.
    fn serializers_of(&self, from: usize) -> Range<usize> {
        if self.has_shared_ports() { from..from + 1 } else { from * self.nodes..(from + 1) * self.nodes }
    }

    fn serializer(&mut self, from: usize, to: usize) -> &mut Serializer {
        let own = self.serializers_of(from);
        &mut self.serializers[if own.len() == 1 { own.start } else { own.start + to }]
    }

    pub fn start(&self) -> Start {
        self.start
    }

    /// A link that is cut loses everything, without counting it as a fault.
    pub fn cut(&mut self, from: usize, to: usize, cut: bool) {
        self.links[from * self.nodes + to].cut = cut;
    }

    /// Other rules from now on.
    pub fn set_rules(&mut self, rules: &Rules, seed: u64) {
        for (index, link) in self.links.iter_mut().enumerate() {
            link.past.sum(&link.policy.tally(link.direction));
            link.policy = policy(rules, seed, index);
        }
    }

    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for link in &self.links {
            tally.sum(&link.past);
            tally.sum(&link.policy.tally(link.direction));
        }
        tally
    }

    /// The next arrival.
    pub fn next_arrival(&self) -> Instant {
        self.flights.peek().map_or(Instant::NEVER, |flight| flight.0.at)
    }

    /// When a full queue of `from` has space; `now` if none is full.
    pub fn space_at(&self, from: usize, now: Instant) -> Instant {
        let own = &self.serializers[self.serializers_of(from)];
        own.iter().filter_map(|serializer| serializer.space_at(now)).min().unwrap_or(now)
    }

    /// Takes out a frame that has arrived at its node.
    pub fn arrived(&mut self, now: Instant) -> Option<(FrameInFlight, Vec<u8>)> {
        loop {
            let flight = self.flights.peek().map(|flight| flight.0).filter(|flight| flight.at <= now)?;
            self.flights.pop();
            if !flight.switched {
                return Some((flight, std::mem::take(&mut self.frames[flight.slot as usize])));
            }
            let frame = &mut self.frames[flight.slot as usize];
            let port = &mut self.ports[flight.to as usize];
            let Some(Departure { at, mark }) = port.take(flight.at, frame.len()) else {
                self.free.push(flight.slot);
                continue;
            };
            port.marked += u64::from(mark && switch::mark(self.start, frame));
            self.flights.push(Reverse(FrameInFlight { at, switched: false, ..flight }));
        }
    }

    /// Gives a frame's memory back.
    pub fn give_back(&mut self, flight: FrameInFlight, frame: Vec<u8>) {
        self.frames[flight.slot as usize] = frame;
        self.free.push(flight.slot);
    }

    fn slot(&mut self, len: usize) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.frames.push(Vec::with_capacity(4096 + 128));
            self.frames.len() as u32 - 1
        });
        self.frames[slot as usize].resize(len, 0);
        slot
    }

    /// Puts a frame under way: at `at` it has crossed its link.
    fn fly(&mut self, at: Instant, slot: u32, from: usize, to: usize) {
        self.number += 1;
        let switched = !self.ports.is_empty();
        let flight =
            FrameInFlight { at, number: self.number, slot, from: from as u32, to: to as u32, switched };
        self.flights.push(Reverse(flight));
    }

    pub fn set_rate(&mut self, from: usize, to: usize, rate: u64) {
        self.serializer(from, to).rate = rate;
    }

    /// A frame that no NIC sent arrives at `at`.
    pub fn inject(&mut self, at: Instant, from: usize, to: usize, bytes: &[u8]) {
        let slot = self.slot(bytes.len());
        self.frames[slot as usize].copy_from_slice(bytes);
        self.fly(at, slot, from, to);
    }

    /// A NIC has sent the frame in `slot`.
    fn depart(&mut self, now: Instant, slot: u32, from: usize, to: usize) {
        let len = self.frames[slot as usize].len();
        let serializer = self.serializer(from, to);
        let transmission = serializer.transmission_ns(len);
        let departure = serializer.take(now, transmission);
        let frame = &mut self.frames[slot as usize];
        let link = &mut self.links[from * self.nodes + to];
        let (facts, _) = Facts::of(self.start, frame, link.direction, None);
        // Any byte of the frame may be corrupted, those below the BTH too.
        let facts = Facts { len: frame.len(), ..facts };
        let verdict = link.policy.judge(link.direction, &facts);
        self.trace.number(now.0);
        self.trace.number((from as u64) << 32 | to as u64);
        self.trace.bytes(frame);
        if let Some(tap) = &mut self.tap {
            tap.push(Sent { at: now, from, to, bytes: frame.clone(), verdict });
        }
        if verdict == Verdict::Drop || link.cut {
            self.free.push(slot);
            return;
        }
        let late = match verdict {
            Verdict::Delay { ns } => ns,
            // So many frames of its length, sent behind it without a pause, arrive first.
            Verdict::Reorder { frames } => u64::from(frames) * (transmission + 1),
            Verdict::Corrupt { at, mask } => {
                frame[at] ^= mask;
                0
            }
            Verdict::Pass | Verdict::Drop | Verdict::Duplicate => 0,
        };
        let arrival = departure.after(link.latency_ns + late);
        if verdict == Verdict::Duplicate {
            let second = self.copy(slot);
            self.fly(arrival.after(transmission), second, from, to);
        }
        self.fly(arrival, slot, from, to);
    }

    fn copy(&mut self, slot: u32) -> u32 {
        let frame = std::mem::take(&mut self.frames[slot as usize]);
        let second = self.slot(frame.len());
        self.frames[second as usize].copy_from_slice(&frame);
        self.frames[slot as usize] = frame;
        second
    }
}

/// A node's egress: the links as its NIC sees them.
pub(crate) struct Outlet<'a> {
    links: &'a mut Links,
    now: Instant,
    from: usize,
    leased: Option<(u32, usize)>,
    /// Frames since the last flush: the position in a train, which the IPv4 identification shows.
    train: u16,
}

impl<'a> Outlet<'a> {
    pub fn new(links: &'a mut Links, now: Instant, from: usize) -> Outlet<'a> {
        Outlet { links, now, from, leased: None, train: 0 }
    }
}

/// Frames of a train at most, as a UDP port would build it.
const TRAIN: u16 = 64;

impl Egress for Outlet<'_> {
    fn start(&self, _: Peer) -> Start {
        self.links.start
    }

    fn seals(&self, _: Peer) -> bool {
        true
    }

    fn lend(&mut self, peer: Peer, _: Class, len: usize) -> Option<Lease<'_>> {
        let to = peer.0 as usize;
        if let Some((slot, _)) = self.leased.take() {
            self.links.free.push(slot);
        }
        if !self.links.serializer(self.from, to).has_space(self.now) {
            return None;
        }
        let slot = self.links.slot(len);
        self.leased = Some((slot, to));
        Some(Lease { bytes: &mut self.links.frames[slot as usize], ip_id: self.train })
    }

    fn peer_of(&mut self, to: &Endpoint, _: Option<Origin>) -> Option<Peer> {
        let node = self.links.endpoints.iter().position(|endpoint| endpoint.address == to.address);
        node.map(|node| Peer(node as u32))
    }

    fn has_space_per_peer(&self) -> bool {
        !self.links.has_shared_ports()
    }

    fn commit(&mut self) {
        let Some((slot, to)) = self.leased.take() else { return };
        self.train = (self.train + 1) % TRAIN;
        self.links.depart(self.now, slot, self.from, to);
    }

    fn flush(&mut self) {
        self.train = 0;
    }
}

impl Drop for Outlet<'_> {
    fn drop(&mut self) {
        if let Some((slot, _)) = self.leased.take() {
            self.links.free.push(slot);
        }
    }
}
