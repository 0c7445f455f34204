//! Observers: callers that are notified of events at ports, with the bytes of the frames.

use remora_wire::frame::{Network, Start};

use super::host;
use crate::engine::Picos;
use crate::frames::Frames;
use crate::network::{CLASSES, Flags, Observation, PauseFrame, PortEvent, PortId};

/// A receiver of the events at observed ports, in the order of their times.
pub trait Observer: Send {
    /// Handles an event.
    fn observe(&mut self, seen: &Seen<'_>);
}

/// An event at an observed port.
#[derive(Copy, Clone)]
pub struct Seen<'a> {
    pub(super) observation: &'a Observation,
    pub(super) frames: &'a Frames,
    /// False if frames have no ICRC; their last four bytes are then undefined.
    pub sealed: bool,
}

impl Seen<'_> {
    /// Returns the time: of the first bit for a departure, of the last bit for an arrival.
    pub fn at(&self) -> Picos {
        self.observation.at
    }

    /// Returns the port of the node at which the event happened.
    pub fn port(&self) -> PortId {
        self.observation.port
    }

    /// Returns the kind of the event.
    pub fn event(&self) -> PortEvent {
        self.observation.event
    }

    /// Returns the contents of a pause frame, or `None` for any other packet.
    pub fn pause(&self) -> Option<PauseFrame> {
        self.observation.pause()
    }

    /// Returns the traffic class of the packet.
    pub fn class(&self) -> u8 {
        self.observation.packet.class
    }

    /// Returns the bytes that the packet occupies on links.
    pub fn charge(&self) -> u32 {
        self.observation.packet.charge.into()
    }

    /// Returns the bytes queued for the port after the event, by class.
    pub fn waiting(&self) -> &[u32; CLASSES] {
        &self.observation.waiting
    }

    /// Replaces the contents of `out` by the packet, from its IPv4 header on. A pause frame leaves `out`
    /// empty.
    pub fn packet(&self, out: &mut Vec<u8>) {
        out.clear();
        let packet = &self.observation.packet;
        let Some(id) = self.observation.id else { return };
        self.frames.append(id, packet.flags.has(Flags::WHOLE), usize::from(packet.len), out);
        if packet.flags.has(Flags::MARKED) {
            crate::ecn::mark(Start::Ip, out);
        }
    }
}

/// Returns source and destination host of a packet that begins at its IPv4 header, or `None` if one of the
/// addresses is not a host's.
pub fn hosts_of(packet: &[u8]) -> Option<[u32; 2]> {
    let (network, _) = Network::parse(packet).ok()?;
    let (source, destination) = network.addresses();
    Some([host::number(source)?, host::number(destination)?])
}
