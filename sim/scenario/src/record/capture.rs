//! Captured frames.

use std::collections::BTreeMap;

use remora_fabric::engine::Picos;
use remora_fabric::network::{EventSet, PortEvent, PortId};
use remora_fabric::simulation::{Seen, Simulation};

use super::frame::{Frame, FrameBytes};
use super::{PortName, Sink};

/// Largest number of ports that a run captures.
pub const CAPTURES_MAX: usize = 256;

struct Captured {
    /// Index in the list of captured ports.
    number: usize,
    /// Names of this port and of the port at the far end of its link.
    ends: [PortName; 2],
}

/// The captured ports.
pub(crate) struct Captures {
    ports: BTreeMap<PortId, Captured>,
    packet: Vec<u8>,
}

impl Captures {
    /// Starts to observe these ports.
    ///
    /// # Errors
    /// Fails if a port does not exist or is named twice, or if there are more than [`CAPTURES_MAX`].
    pub(crate) fn new(simulation: &mut Simulation, asked: &[PortName]) -> Result<Captures, String> {
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
            simulation.observe(port, EventSet::DEPARTURES);
            simulation.observe(port.reverse(), EventSet::ARRIVALS);
        }
        Ok(Captures { ports, packet: Vec::new() })
    }

    /// Passes a frame to `sink` if its port is captured.
    pub(crate) fn observe(&mut self, seen: &Seen<'_>, sink: &mut dyn Sink) {
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

/// Returns a locally administered MAC address for a port: 02:01, node number, port number. Addresses of
/// hosts' packets begin with 02:00 instead.
fn mac(name: PortName) -> [u8; 6] {
    let [a, b] = (name.node as u16).to_be_bytes();
    let [c, d] = (name.port as u16).to_be_bytes();
    [2, 1, a, b, c, d]
}
