//! What is seen of ports that are observed: frames that arrive and leave, and queues that change.
//!
//! A network that nobody observes pays for a test of one byte of a port that it has at hand.

use super::observed::Observe;
use super::packet::{Flags, Packet, PacketId};
use super::pause::PauseFrame;
use super::port::CLASSES;
use super::port_id::PortId;
use super::{Due, Network};
use crate::engine::Picos;

/// What befalls a packet at a port.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Its last bit has arrived at the node.
    Arrived,
    /// It waits for the port.
    Enqueued,
    /// Its first bit leaves.
    Departed,
    /// It is lost in front of the port.
    Dropped,
}

/// One event at a port that is observed.
#[derive(Copy, Clone, Debug)]
pub struct Observation {
    /// When.
    pub at: Picos,
    /// The port of the node at which it happens: the one by which this node sends on that link.
    pub port: PortId,
    /// What happens.
    pub event: Event,
    /// The packet then. A pause frame has its contents in `hash`.
    pub packet: Packet,
    /// Its place in tables beside the network's. A pause frame has none.
    pub id: Option<PacketId>,
    /// Bytes that wait for the port behind this event, by class.
    pub waiting: [u32; CLASSES],
}

impl Observation {
    /// What a pause frame says; `None`: it is another packet.
    pub fn pause(&self) -> Option<PauseFrame> {
        self.packet.flags.has(Flags::PAUSE).then(|| PauseFrame::unpack(self.packet.hash))
    }
}

impl Network {
    /// Observes one direction of a link from now on, beside what is observed of it already. Observations
    /// are kept until [`Network::take_observations`], which is due whenever [`Network::next_due`] returns.
    pub fn observe(&mut self, id: PortId, what: Observe) {
        let port = &mut self.ports[id.index()];
        port.observed = port.observed.with(what);
    }

    /// Observes all pause frames that arrive.
    pub fn observe_pauses(&mut self) {
        self.observes_pauses = true;
    }

    /// Moves what was observed behind the end of `into`.
    pub fn take_observations(&mut self, into: &mut Vec<Observation>) {
        into.append(&mut self.observations);
    }

    /// Notes an event of a packet at a node's port.
    #[cold]
    #[inline(never)]
    pub(super) fn note(&mut self, port: PortId, event: Event, id: PacketId) {
        let packet = self.packets[id];
        let id = (!packet.flags.has(Flags::PAUSE)).then_some(id);
        self.note_packet(port, event, self.now, packet, id);
    }

    /// Notes a pause frame that is no packet, as it takes no time on the link.
    pub(super) fn note_pause(&mut self, port: PortId, event: Event, at: Picos, frame: u32) {
        let packet = Packet::new(0, 7, 0, frame).flagged(Flags::PAUSE);
        self.note_packet(port, event, at, packet, None);
    }

    fn note_packet(&mut self, port: PortId, event: Event, at: Picos, packet: Packet, id: Option<PacketId>) {
        let waiting = self.ports[port.index()].queues.map(|queue| queue.bytes);
        self.observations.push(Observation { at, port, event, packet, id, waiting });
    }

    /// Is a pause frame that arrives by a port observed?
    pub(super) fn observes_pause(&self, id: PortId) -> bool {
        self.observes_pauses || self.ports[id.index()].observed.has(Observe::ARRIVALS)
    }

    /// A packet has arrived by a port that is observed. Whoever observes hears of it before the next event,
    /// so that what is kept stays little.
    #[cold]
    #[inline(never)]
    pub(super) fn arrived_observed(&mut self, id: PortId, packet: PacketId) -> Option<Due> {
        let is_pause = self.packets[packet].flags.has(Flags::PAUSE);
        if !is_pause && self.ports[id.index()].observed.has(Observe::ARRIVALS) {
            self.note(id.reverse(), Event::Arrived, packet);
        }
        self.deliver(id, packet).or(Some(Due::Observed))
    }
}
