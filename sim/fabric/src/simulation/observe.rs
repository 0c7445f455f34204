//! Whoever observes ports is told of what happens there, with the bytes of frames.

use remora_wire::frame::{Network, Start};

use super::{Simulation, host};
use crate::engine::Picos;
use crate::frames::Frames;
use crate::network::{CLASSES, Flags, Observation, Observe, PauseFrame, PortEvent, PortId};

/// Is told of what happens at the ports that are observed, in the order of time.
pub trait Observer: Send {
    /// One event.
    fn observe(&mut self, seen: &Seen<'_>);
}

/// One event at a port that is observed.
#[derive(Copy, Clone)]
pub struct Seen<'a> {
    observation: &'a Observation,
    frames: &'a Frames,
    /// Frames have their ICRC. Otherwise their last four bytes say nothing.
    pub sealed: bool,
}

impl Seen<'_> {
    /// When. A frame departs with its first bit and arrives with its last.
    pub fn at(&self) -> Picos {
        self.observation.at
    }

    /// The port of the node at which it happens.
    pub fn port(&self) -> PortId {
        self.observation.port
    }

    /// What happens.
    pub fn event(&self) -> PortEvent {
        self.observation.event
    }

    /// What the pause frame says; `None`: it is a packet.
    pub fn pause(&self) -> Option<PauseFrame> {
        self.observation.pause()
    }

    /// Class of the packet.
    pub fn class(&self) -> u8 {
        self.observation.packet.class
    }

    /// Bytes that it is charged.
    pub fn charge(&self) -> u32 {
        self.observation.packet.charge.into()
    }

    /// Bytes that wait for the port behind this event, by class.
    pub fn waiting(&self) -> &[u32; CLASSES] {
        &self.observation.waiting
    }

    /// Writes the packet as it is here, from its IPv4 header on, over what was in `out`. A pause frame leaves
    /// nothing there.
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

/// The hosts of a packet that hosts of a simulation send, from its IPv4 header on: source and destination.
pub fn hosts_of(packet: &[u8]) -> Option<[u32; 2]> {
    let (network, _) = Network::parse(packet).ok()?;
    let (source, destination) = network.addresses();
    Some([host::number(source)?, host::number(destination)?])
}

impl Simulation {
    /// `observer` is told of what happens at ports that are observed, instead of the one before it.
    pub fn set_observer(&mut self, observer: Box<dyn Observer>) {
        self.observer = Some(observer);
    }

    /// Observes one direction of a link from now on.
    pub fn observe(&mut self, port: PortId, what: Observe) {
        self.network.observe(port, what);
    }

    /// Observes all pause frames that arrive.
    pub fn observe_pauses(&mut self) {
        self.network.observe_pauses();
    }

    /// Tells the observer what was observed since it was told last.
    #[cold]
    #[inline(never)]
    pub(super) fn report(&mut self) {
        let Some(observer) = &mut self.observer else { return };
        self.network.take_observations(&mut self.observations);
        for observation in &self.observations {
            observer.observe(&Seen { observation, frames: &self.frames, sealed: self.config.icrc });
        }
        self.observations.clear();
    }
}
