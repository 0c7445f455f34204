//! The network of a world: its nodes are hosts.
//!
//! Each pair of nodes has a link of its own. Where the links of a node share a port, or where there is a
//! switch, each node has one link to a switch instead.

use remora_fault::{Tally, Verdict};
use remora_transport::Instant;
use remora_wire::frame::{Endpoint, Start};

use super::Config;
use super::pairs::Pairs;
use crate::ecn;
use crate::engine::Picos;
use crate::frames::Frames;
use crate::network::{
    BufferConfig, Flags, MarkConfig, Marks, Network, NetworkConfig, Packet, PacketId, Port, PortId,
};
use crate::topology::{Link, NodeKind, RATE_MAX, RATE_MIN, Topology};
use crate::trace::Trace;

/// Latency, rate and queue of a link.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// From the last bit's departure to its arrival, nanoseconds: ten seconds at most.
    pub latency_ns: u64,
    /// Bits per second; 0: a frame takes no time.
    pub rate: u64,
    /// Frames that wait for their departure, at most. The one that is leaving is among them.
    pub queue: usize,
}

impl Default for LinkConfig {
    /// A cable in a rack: 100 Gb/s, 1 µs.
    fn default() -> LinkConfig {
        LinkConfig { latency_ns: 1_000, rate: 100_000_000_000, queue: 64 }
    }
}

/// Latency, rate, buffer and marking of every port of the switch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// From the last bit's departure to its arrival at the node, nanoseconds: ten seconds at most.
    pub latency_ns: u64,
    /// Bits per second; 0: a frame takes no time.
    pub rate: u64,
    /// Bytes of frames that wait for a port, at most. The one that is leaving is not among them.
    pub buffer: usize,
    /// When it marks; never, if not given.
    pub marks: Option<Marks>,
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

/// Behind a port that all links of a node share: whatever comes out of it is at its node at once.
const NO_SWITCH: SwitchConfig = SwitchConfig { latency_ns: 0, rate: 0, buffer: usize::MAX, marks: None };

/// All links of a world, and the frames on them.
pub(crate) struct Links {
    pub network: Network,
    frames: Frames,
    pairs: Pairs,
    nodes: usize,
    /// Each node has one link, to a switch. Else it has one to each other node.
    is_star: bool,
    queue: usize,
    /// The nodes' endpoints, for frames to an address.
    pub endpoints: Vec<Endpoint>,
    pub start: Start,
    pub trace: Trace,
    pub tap: Option<Vec<Sent>>,
}

impl Links {
    pub fn new(config: &Config, endpoints: Vec<Endpoint>) -> Links {
        let nodes = config.nodes;
        let switch = config.switch.or(config.shared_ports.then_some(NO_SWITCH));
        let topology = match switch {
            Some(_) => star(nodes, config.link),
            None => mesh(nodes, config.link),
        };
        let marks = switch.and_then(|switch| switch.marks);
        let network = NetworkConfig {
            seed: config.seed,
            buffer: BufferConfig::Fifo {
                limit: switch.map_or(0, |switch| u32::try_from(switch.buffer).unwrap_or(u32::MAX)),
                pause: None,
                per_port: false,
            },
            marks: marks.map(|marks| MarkConfig {
                by_rate: vec![(None, marks)],
                at_dequeue: false,
                classes: u8::MAX,
            }),
            ..NetworkConfig::default()
        };
        let network =
            Network::new(topology, network).expect("as many nodes and as long links as a network has");
        let mut links = Links {
            network,
            frames: Frames::new(config.nic.mtu as usize),
            pairs: Pairs::new(nodes, &config.rules, config.seed),
            nodes,
            is_star: switch.is_some(),
            queue: config.link.queue,
            endpoints,
            start: config.start,
            trace: Trace::new(),
            tap: None,
        };
        links.set_up(config.link, switch);
        links
    }

    /// Rates and latencies that a topology does not have: none, and other ones each way.
    fn set_up(&mut self, link: LinkConfig, switch: Option<SwitchConfig>) {
        // All times of a world are whole nanoseconds, as those of its NICs and tests are.
        self.network.round_to_ns();
        for port in 0..self.network.ports().len() as u32 {
            let is_switchs = self.is_star && port % 2 == 1;
            let rate = switch.filter(|_| is_switchs).map_or(link.rate, |switch| switch.rate);
            self.network.set_rate(PortId(port), rate);
        }
        if let Some(switch) = switch {
            self.network.delay_departures(self.nodes as u32, switch.latency_ns * Picos::NANOSECOND);
            self.network.delay_arrivals(self.nodes as u32, link.latency_ns * Picos::NANOSECOND);
        }
    }

    /// The port by which frames of a node come to another. No link leads from a node to itself: such frames
    /// come by one that leads to it.
    fn port(&self, from: usize, to: usize) -> PortId {
        if self.is_star {
            return PortId(2 * from as u32);
        }
        if from == to {
            return self.port((to + 1) % self.nodes, to);
        }
        let (low, high) = (from.min(to), from.max(to));
        // The links of the nodes before it, then those of its own.
        let link = low * (2 * self.nodes - low - 1) / 2 + (high - low - 1);
        PortId(2 * link as u32 + u32::from(from > to))
    }

    /// Does a frame stay at its node?
    fn is_own(&self, from: usize, to: usize) -> bool {
        from == to && !self.is_star
    }

    /// Have the links of a node one port together?
    pub fn has_shared_ports(&self) -> bool {
        self.is_star
    }

    /// The switch's port that leads to a node, if there is a switch.
    pub fn switch_port(&self, node: usize) -> Option<&Port> {
        self.is_star.then(|| self.network.port(PortId(2 * node as u32 + 1)))
    }

    pub fn cut(&mut self, from: usize, to: usize, cut: bool) {
        self.pairs.cut(from, to, cut);
    }

    pub fn set_rules(&mut self, rules: &remora_fault::Rules, seed: u64) {
        self.pairs.set_rules(rules, seed);
    }

    pub fn tally(&self) -> Tally {
        self.pairs.tally()
    }

    pub fn set_rate(&mut self, from: usize, to: usize, rate: u64) {
        self.network.set_rate(self.port(from, to), rate);
    }

    /// Does the queue of a link take one more frame? If not, its node hears of it when it does.
    pub fn has_space(&mut self, from: usize, to: usize) -> bool {
        if self.is_own(from, to) {
            return true;
        }
        let id = self.port(from, to);
        let port = self.network.port(id);
        let leaving = usize::from(port.busy_until > self.network.now());
        let has_space = port.packets as usize + leaving < self.queue;
        if !has_space {
            self.network.expect_free(id);
        }
        has_space
    }

    /// Where a NIC writes a frame.
    pub fn lend(&mut self, len: usize) -> &mut [u8] {
        self.frames.lend(len)
    }

    /// A NIC has written a frame.
    pub fn depart(&mut self, from: usize, to: usize, len: usize) {
        let frame = self.frames.written(len);
        let fate = self.pairs.judge(from, to, self.start, frame);
        let at = self.network.now().instant();
        self.trace.number(at.0);
        self.trace.number((from as u64) << 32 | to as u64);
        self.trace.bytes(frame);
        if let Some(tap) = &mut self.tap {
            tap.push(Sent { at, from, to, bytes: frame.to_vec(), verdict: fate.verdict });
        }
        let packet = packet(self.start, from, to, frame);
        let port = self.port(from, to);
        if self.is_own(from, to) {
            let crossed = self.network.port(port).transmission(len as u32) + self.network.port(port).delay;
            if !fate.is_lost {
                let id = self.network.inject(port, packet, self.network.now().after(crossed));
                self.frames.keep(id, true, len);
            }
            return;
        }
        if fate.is_lost {
            // It takes its time on the link all the same.
            self.network.send(port, packet.lost());
            return;
        }
        let packet = match fate.verdict {
            Verdict::Delay { ns } => packet.late(ns * Picos::NANOSECOND),
            // So many frames of its length, sent behind it without a pause, arrive first.
            Verdict::Reorder { frames } => {
                let transmission = self.network.port(port).transmission(len as u32);
                packet.late(u64::from(frames) * (transmission + Picos::NANOSECOND))
            }
            Verdict::Corrupt { at, mask } => {
                self.frames.written_mut(len)[at] ^= mask;
                packet
            }
            Verdict::Duplicate => {
                let first = self.network.send(port, packet);
                self.frames.copy(first, len);
                packet
            }
            Verdict::Pass | Verdict::Drop => packet,
        };
        let id = self.network.send(port, packet);
        self.frames.keep(id, true, len);
    }

    /// A frame that no NIC sent has crossed the first link at `at`. What does not fit into a packet is cut
    /// off.
    pub fn inject(&mut self, at: Instant, from: usize, to: usize, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(usize::from(u16::MAX))];
        let port = self.port(from, to);
        let id = self.network.inject(port, packet(self.start, from, to, bytes), Picos::from(at));
        self.frames.put(id, bytes);
    }

    /// A frame has arrived: its sender and its bytes. It is to be [closed](Links::close).
    pub fn open(&mut self, id: PacketId) -> (Packet, &[u8]) {
        let packet = self.network.take(id);
        let bytes = self.frames.open(id, true, usize::from(packet.len));
        if packet.flags.has(Flags::MARKED) {
            ecn::mark(self.start, bytes);
        }
        (packet, bytes)
    }

    /// The NIC has read the frame that has arrived.
    pub fn close(&mut self, id: PacketId, packet: &Packet) {
        self.frames.close(id, true, usize::from(packet.len));
    }
}

/// The packet of a frame; its hash is the number of its sender. All have one class, and so one queue.
fn packet(start: Start, from: usize, to: usize, frame: &[u8]) -> Packet {
    let len = frame.len() as u16;
    let may_be_marked = ecn::field(start, frame) != 0;
    let flags = if may_be_marked { Flags::ECN_CAPABLE } else { Flags::NONE };
    // An empty frame is a packet, too.
    let mut packet = Packet::new(to as u16, 0, len.max(1), from as u32).flagged(flags.with(Flags::WHOLE));
    packet.len = len;
    packet
}

fn link(a: usize, b: usize, rate: u64, delay: u64) -> Link {
    Link { a: a as u32, b: b as u32, rate: rate.clamp(RATE_MIN, RATE_MAX), delay, loss: 0.0 }
}

/// Each node has a link to each other one.
fn mesh(nodes: usize, config: LinkConfig) -> Topology {
    let delay = config.latency_ns * Picos::NANOSECOND;
    let pairs = (0..nodes).flat_map(|a| (a + 1..nodes).map(move |b| (a, b)));
    let links = pairs.map(|(a, b)| link(a, b, config.rate, delay)).collect();
    Topology { nodes: vec![NodeKind::Host; nodes], links, places: Vec::new() }
}

/// Each node has a link to one switch. Each way has latencies of its own, which are set later.
fn star(nodes: usize, config: LinkConfig) -> Topology {
    let mut kinds = vec![NodeKind::Host; nodes];
    kinds.push(NodeKind::Switch);
    let links = (0..nodes).map(|node| link(node, nodes, config.rate, 0)).collect();
    Topology { nodes: kinds, links, places: Vec::new() }
}
