//! The network of a world, whose nodes are hosts.
//!
//! Each pair of nodes has its own link. If the links of a node share a port, or if there is a switch, each
//! node has one link to a switch instead.

use remora_fault::{Tally, Verdict};
use remora_transport::Instant;
use remora_wire::frame::{Endpoint, Start};

use super::Config;
use super::config::{LinkConfig, SwitchConfig};
use super::pairs::Pairs;
use crate::ecn;
use crate::engine::Picos;
use crate::frames::Frames;
use crate::network::{
    BufferConfig, Flags, MarkConfig, Network, NetworkConfig, Packet, PacketId, Port, PortId,
};
use crate::topology::{Link, NodeKind, RATE_MAX, RATE_MIN, Topology};
use crate::trace::Trace;

/// A frame as it left a NIC, for tests that examine frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Time of departure.
    pub at: Instant,
    /// Number of the sending node.
    pub from: usize,
    /// Number of the receiving node.
    pub to: usize,
    /// Bytes of the frame.
    pub bytes: Vec<u8>,
    /// Effect of the fault rules on the frame.
    pub verdict: Verdict,
}

/// The switch behind shared ports if no switch is configured: it takes no time and never drops.
const NO_SWITCH: SwitchConfig = SwitchConfig { latency_ns: 0, rate: 0, buffer: usize::MAX, marks: None };

/// The links of a world, and the frames on them.
pub(crate) struct Links {
    pub network: Network,
    frames: Frames,
    pairs: Pairs,
    nodes: usize,
    /// True if each node has one link to a switch; false if each pair of nodes has a link.
    is_star: bool,
    queue: usize,
    /// Endpoints of the nodes, to look up addresses.
    pub endpoints: Vec<Endpoint>,
    pub start: Start,
    pub trace: Trace,
    pub tap: Option<Vec<Sent>>,
}

impl Links {
    pub(crate) fn new(config: &Config, endpoints: Vec<Endpoint>) -> Links {
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

    /// Sets rates and latencies that a topology cannot express: rate 0, and different values for both
    /// directions.
    fn set_up(&mut self, link: LinkConfig, switch: Option<SwitchConfig>) {
        // All times of a world are whole nanoseconds, as those of NICs and tests are.
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

    /// Returns the port by which frames from one node reach another. Frames to the sender itself use a port
    /// of another link to it, because no link joins a node to itself.
    fn port(&self, sender: usize, receiver: usize) -> PortId {
        if self.is_star {
            return PortId(2 * sender as u32);
        }
        if sender == receiver {
            return self.port((receiver + 1) % self.nodes, receiver);
        }
        let low = sender.min(receiver);
        let high = sender.max(receiver);
        // The links of all nodes with lower numbers come first, then those of this node.
        let link = low * (2 * self.nodes - low - 1) / 2 + (high - low - 1);
        PortId(2 * link as u32 + u32::from(sender > receiver))
    }

    /// Returns true if a frame is for its own sender and does not pass a switch.
    fn is_own(&self, sender: usize, receiver: usize) -> bool {
        sender == receiver && !self.is_star
    }

    /// Returns true if the links of a node share a port.
    pub(crate) fn has_shared_ports(&self) -> bool {
        self.is_star
    }

    /// Returns the switch's port to a node, if there is a switch.
    pub(crate) fn switch_port(&self, node: usize) -> Option<&Port> {
        self.is_star.then(|| self.network.port(PortId(2 * node as u32 + 1)))
    }

    pub(crate) fn cut(&mut self, sender: usize, receiver: usize, cut: bool) {
        self.pairs.cut(sender, receiver, cut);
    }

    pub(crate) fn set_rules(&mut self, rules: &remora_fault::Rules, seed: u64) {
        self.pairs.set_rules(rules, seed);
    }

    pub(crate) fn tally(&self) -> Tally {
        self.pairs.tally()
    }

    pub(crate) fn set_rate(&mut self, sender: usize, receiver: usize, rate: u64) {
        self.network.set_rate(self.port(sender, receiver), rate);
    }

    /// Returns true if the queue of a link accepts another frame. If not,
    /// [`Due::Free`](crate::network::Due::Free) is scheduled.
    pub(crate) fn has_space(&mut self, sender: usize, receiver: usize) -> bool {
        if self.is_own(sender, receiver) {
            return true;
        }
        let id = self.port(sender, receiver);
        let port = self.network.port(id);
        let leaving = usize::from(port.busy_until > self.network.now());
        let has_space = port.packets as usize + leaving < self.queue;
        if !has_space {
            self.network.expect_free(id);
        }
        has_space
    }

    /// Returns a buffer into which a NIC writes a frame.
    pub(crate) fn lend(&mut self, len: usize) -> &mut [u8] {
        self.frames.lend(len)
    }

    /// Sends the frame that a NIC has written, subject to the fault rules.
    pub(crate) fn depart(&mut self, sender: usize, receiver: usize, len: usize) {
        let frame = self.frames.written(len);
        let departure = self.network.now().instant();
        let fate = self.pairs.judge(sender, receiver, self.start, frame, departure.0);
        self.trace.number(departure.0);
        self.trace.number((sender as u64) << 32 | receiver as u64);
        self.trace.bytes(frame);
        if let Some(tap) = &mut self.tap {
            tap.push(Sent {
                at: departure,
                from: sender,
                to: receiver,
                bytes: frame.to_vec(),
                verdict: fate.verdict,
            });
        }
        let packet = packet(self.start, sender, receiver, frame);
        let port = self.port(sender, receiver);
        if self.is_own(sender, receiver) {
            let crossed = self.network.port(port).transmission(len as u32) + self.network.port(port).delay;
            if !fate.is_lost {
                let id = self.network.inject(port, packet, self.network.now().after(crossed));
                self.frames.keep(id, true, len);
            }
            return;
        }
        if fate.is_lost {
            // A lost frame occupies its link, too.
            self.network.send(port, packet.lost());
            return;
        }
        let packet = match fate.verdict {
            Verdict::Delay { ns } => packet.late(ns * Picos::NANOSECOND),
            // This many frames of equal length, sent immediately after it, arrive first.
            Verdict::Reorder { frames } => {
                let transmission = self.network.port(port).transmission(len as u32);
                packet.late(u64::from(frames) * (transmission + Picos::NANOSECOND))
            }
            Verdict::Corrupt { at: offset, mask } => {
                self.frames.written_mut(len)[offset] ^= mask;
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

    /// Makes a frame that no NIC sent reach the end of the first link at time `arrival`. Frames are truncated
    /// to 65,535 bytes.
    pub(crate) fn inject(&mut self, arrival: Instant, sender: usize, receiver: usize, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(usize::from(u16::MAX))];
        let port = self.port(sender, receiver);
        let id = self.network.inject(port, packet(self.start, sender, receiver, bytes), Picos::from(arrival));
        self.frames.put(id, bytes);
    }

    /// Returns the descriptor and the bytes of a frame that has arrived, until [`Links::close`].
    pub(crate) fn open(&mut self, id: PacketId) -> (Packet, &[u8]) {
        let packet = self.network.take(id);
        let bytes = self.frames.open(id, true, usize::from(packet.len));
        if packet.flags.has(Flags::MARKED) {
            ecn::mark(self.start, bytes);
        }
        (packet, bytes)
    }

    /// Ends the reading of an arrived frame.
    pub(crate) fn close(&mut self, id: PacketId, packet: &Packet) {
        self.frames.close(id, true, usize::from(packet.len));
    }
}

/// Returns the descriptor of a frame; its hash is the number of its sender. All frames have the same class,
/// and thus share one queue.
fn packet(start: Start, sender: usize, receiver: usize, frame: &[u8]) -> Packet {
    let len = frame.len() as u16;
    let may_be_marked = ecn::field(start, frame) != 0;
    let flags = if may_be_marked { Flags::ECN_CAPABLE } else { Flags::NONE };
    // An empty frame still needs a charge.
    let mut packet =
        Packet::new(receiver as u16, 0, len.max(1), sender as u32).flagged(flags.with(Flags::WHOLE));
    packet.len = len;
    packet
}

fn link(a: usize, b: usize, rate: u64, delay: u64) -> Link {
    Link { a: a as u32, b: b as u32, rate: rate.clamp(RATE_MIN, RATE_MAX), delay, loss: 0.0 }
}

/// Returns a topology with a link between each pair of nodes.
fn mesh(nodes: usize, config: LinkConfig) -> Topology {
    let delay = config.latency_ns * Picos::NANOSECOND;
    let pairs = (0..nodes).flat_map(|a| (a + 1..nodes).map(move |b| (a, b)));
    let links = pairs.map(|(a, b)| link(a, b, config.rate, delay)).collect();
    Topology { nodes: vec![NodeKind::Host; nodes], links, places: Vec::new() }
}

/// Returns a topology with a link from each node to a switch. Latencies differ by direction and are set
/// later.
fn star(nodes: usize, config: LinkConfig) -> Topology {
    let mut kinds = vec![NodeKind::Host; nodes];
    kinds.push(NodeKind::Switch);
    let links = (0..nodes).map(|node| link(node, nodes, config.rate, 0)).collect();
    Topology { nodes: kinds, links, places: Vec::new() }
}
