//! Frames at ports that are captured.

use std::collections::BTreeMap;

use remora_fabric::engine::Picos;
use remora_fabric::network::{Observe, PortEvent, PortId};
use remora_fabric::simulation::{Seen, Simulation};

use super::{PortName, Sink};

/// Ports that one run captures, at most.
pub const CAPTURES_MAX: usize = 256;

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

/// A port that is captured.
struct Captured {
    /// Its number in the list that was asked for.
    number: usize,
    /// Itself and the port at the far end of its link.
    ends: [PortName; 2],
}

/// All ports that are captured.
pub struct Captures {
    ports: BTreeMap<PortId, Captured>,
    packet: Vec<u8>,
}

impl Captures {
    /// Observes these ports of a simulation.
    ///
    /// # Errors
    /// A port that is not there, one that is named twice, or too many.
    pub fn new(simulation: &mut Simulation, asked: &[PortName]) -> Result<Captures, String> {
        let count = asked.len();
        if count > CAPTURES_MAX {
            return Err(format!(
                "{count} ports are to be captured, and the limit is {CAPTURES_MAX}: drop some"
            ));
        }
        let mut ports = BTreeMap::new();
        for (number, name) in asked.iter().enumerate() {
            let port = name.find(simulation.network())?;
            let far = PortName::of(simulation.network(), port.reverse());
            if ports.insert(port, Captured { number, ends: [*name, far] }).is_some() {
                return Err(format!("port {name} is to be captured twice: name it once"));
            }
            simulation.observe(port, Observe::DEPARTURES);
            simulation.observe(port.reverse(), Observe::ARRIVALS);
        }
        Ok(Captures { ports, packet: Vec::new() })
    }

    /// Gives a frame to `sink`, if its port is captured.
    pub fn observe(&mut self, seen: &Seen<'_>, sink: &mut dyn Sink) {
        let leaves = match seen.event() {
            PortEvent::Departed => true,
            PortEvent::Arrived => false,
            PortEvent::Enqueued | PortEvent::Dropped => return,
        };
        let Some(Captured { number, ends: [own, far] }) = self.ports.get(&seen.port()) else { return };
        let time_ns = seen.at().0 / Picos::NANOSECOND;
        if let Some(pause) = seen.pause() {
            let frame = pause.emit(mac(if leaves { *own } else { *far }));
            let bytes = FrameBytes::Pause(&frame);
            return sink.frame(*number, &Frame { time_ns, leaves, bytes });
        }
        seen.packet(&mut self.packet);
        let bytes = FrameBytes::Packet(&self.packet, seen.sealed);
        sink.frame(*number, &Frame { time_ns, leaves, bytes });
    }
}

/// A locally administered address of a port: 02:01, its node and its number. Those of hosts' packets begin
/// with 02:00.
fn mac(name: PortName) -> [u8; 6] {
    let ([a, b], [c, d]) = ((name.node as u16).to_be_bytes(), (name.port as u16).to_be_bytes());
    [2, 1, a, b, c, d]
}
