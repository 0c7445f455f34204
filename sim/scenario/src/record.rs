//! What a run records beside its flows: the frames at ports that are captured.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use remora_fabric::engine::Picos;
use remora_fabric::network::{Network, Observe, PortEvent, PortId};
use remora_fabric::simulation::{Observer, Seen, Simulation};

use crate::error::excerpt;

/// Ports that one run captures, at most.
pub const CAPTURES_MAX: usize = 256;

/// A port as HPCC's files name it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortName {
    /// Its node.
    pub node: u32,
    /// Its number among the node's ports, from 1, in the order of the links.
    pub port: u32,
}

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.node, self.port)
    }
}

impl FromStr for PortName {
    type Err = String;

    fn from_str(text: &str) -> Result<PortName, String> {
        let parsed = text
            .split_once(':')
            .and_then(|(node, port)| Some(PortName { node: node.parse().ok()?, port: port.parse().ok()? }));
        parsed.filter(|name| name.port > 0).ok_or_else(|| {
            let text = excerpt(text);
            format!("`{text}` is no port: write its node and its number, from 1, like 130:1")
        })
    }
}

impl PortName {
    /// The port in a network.
    ///
    /// # Errors
    /// There is no such node or port.
    pub fn find(self, network: &Network) -> Result<PortId, String> {
        let PortName { node, port } = self;
        if let Some(found) = network.port_of(node, port - 1) {
            return Ok(found);
        }
        let nodes = network.topology().nodes.len();
        if node as usize >= nodes {
            return Err(format!("{self} names node {node}, and the last one is {}: choose it", nodes - 1));
        }
        let ports = (0..).take_while(|port| network.port_of(node, *port).is_some()).count();
        Err(format!("node {node} has the ports 1 to {ports}: choose one of them instead of {port}"))
    }
}

/// A frame at a port that is captured.
#[derive(Copy, Clone, Debug)]
pub struct Frame<'a> {
    /// Nanoseconds of simulated time, cut: at its first bit if it leaves, at its last if it arrives.
    pub time_ns: u64,
    /// It leaves the node. Otherwise it arrives there.
    pub leaves: bool,
    /// Its bytes.
    pub bytes: FrameBytes<'a>,
}

/// The bytes of a frame.
#[derive(Copy, Clone, Debug)]
pub enum FrameBytes<'a> {
    /// An IPv4 packet of RoCE v2. It is sealed, or lacks its ICRC: then the last four bytes say nothing.
    Packet(&'a [u8], bool),
    /// A pause frame, from its Ethernet header on, without its check sequence.
    Pause(&'a [u8]),
}

/// Who takes what a run records.
pub trait Sink: Send {
    /// A frame at the port of a capture, by number in the list that was asked for.
    fn frame(&mut self, capture: usize, frame: &Frame<'_>);
}

/// A port that is captured.
struct Captured {
    /// Its number in the list that was asked for.
    number: usize,
    /// Itself and the port at the far end of its link.
    ends: [PortName; 2],
}

/// Turns what is observed into what is asked for.
struct Recorder {
    sink: Box<dyn Sink>,
    captures: BTreeMap<PortId, Captured>,
    packet: Vec<u8>,
}

/// Records frames at these ports of a simulation.
///
/// # Errors
/// A port that is not there, one that is named twice, or too many.
pub fn record(simulation: &mut Simulation, captures: &[PortName], sink: Box<dyn Sink>) -> Result<(), String> {
    if captures.len() > CAPTURES_MAX {
        let asked = captures.len();
        return Err(format!("{asked} ports are to be captured, and the limit is {CAPTURES_MAX}: drop some"));
    }
    let mut found = BTreeMap::new();
    for (number, name) in captures.iter().enumerate() {
        let port = name.find(simulation.network())?;
        let (node, far) = simulation.network().name_of(port.reverse());
        let ends = [*name, PortName { node, port: far + 1 }];
        if found.insert(port, Captured { number, ends }).is_some() {
            return Err(format!("port {name} is to be captured twice: name it once"));
        }
        simulation.observe(port, Observe::DEPARTURES);
        simulation.observe(port.reverse(), Observe::ARRIVALS);
    }
    simulation.set_observer(Box::new(Recorder { sink, captures: found, packet: Vec::new() }));
    Ok(())
}

impl Observer for Recorder {
    fn observe(&mut self, seen: &Seen<'_>) {
        self.capture(seen);
    }
}

impl Recorder {
    fn capture(&mut self, seen: &Seen<'_>) {
        let leaves = match seen.event() {
            PortEvent::Departed => true,
            PortEvent::Arrived => false,
            PortEvent::Enqueued | PortEvent::Dropped => return,
        };
        let Some(Captured { number, ends: [own, far] }) = self.captures.get(&seen.port()) else { return };
        let time_ns = seen.at().0 / Picos::NANOSECOND;
        if let Some(pause) = seen.pause() {
            let frame = pause.emit(mac(if leaves { *own } else { *far }));
            let bytes = FrameBytes::Pause(&frame);
            return self.sink.frame(*number, &Frame { time_ns, leaves, bytes });
        }
        seen.packet(&mut self.packet);
        let bytes = FrameBytes::Packet(&self.packet, seen.sealed);
        self.sink.frame(*number, &Frame { time_ns, leaves, bytes });
    }
}

/// A locally administered address of a port: 02:01, its node and its number. Those of hosts' packets begin
/// with 02:00.
fn mac(name: PortName) -> [u8; 6] {
    let ([a, b], [c, d]) = ((name.node as u16).to_be_bytes(), (name.port as u16).to_be_bytes());
    [2, 1, a, b, c, d]
}
