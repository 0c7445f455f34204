//! Observation of ports: arriving and departing frames, and changes of queues.
//!
//! Without observers, the cost is a test of one byte of a port that is in the cache anyway.

use super::event_set::EventSet;
use super::observation::{Event, Observation};
use super::packet::{Flags, Packet, PacketId};
use super::port_id::PortId;
use super::{Due, Network};
use crate::engine::Picos;

impl Network {
    /// Observes a direction of a link from now on, in addition to earlier requests. Observations are kept
    /// until [`Network::take_observations`], which must be called whenever [`Network::next_due`] returns.
    pub fn observe(&mut self, id: PortId, events: EventSet) {
        let port = &mut self.ports[id.index()];
        port.observed = port.observed.with(events);
    }

    /// Observes all pause frames that arrive at any node.
    pub fn observe_pauses(&mut self) {
        self.observes_pauses = true;
    }

    /// Moves the observations to the end of `out`.
    pub fn take_observations(&mut self, out: &mut Vec<Observation>) {
        out.append(&mut self.observations);
    }

    /// Records an event of a packet at a port.
    #[cold]
    #[inline(never)]
    pub(super) fn note(&mut self, port: PortId, event: Event, id: PacketId) {
        let packet = self.packets[id];
        let id = (!packet.flags.has(Flags::PAUSE)).then_some(id);
        self.note_packet(port, event, self.now, packet, id);
    }

    /// Records a pause frame that has no descriptor because it takes no time on the link.
    pub(super) fn note_pause(&mut self, port: PortId, event: Event, time: Picos, frame: u32) {
        let packet = Packet::new(0, 7, 0, frame).flagged(Flags::PAUSE);
        self.note_packet(port, event, time, packet, None);
    }

    fn note_packet(&mut self, port: PortId, event: Event, time: Picos, packet: Packet, id: Option<PacketId>) {
        let waiting = self.ports[port.index()].queues.map(|queue| queue.bytes);
        self.observations.push(Observation { at: time, port, event, packet, id, waiting });
    }

    /// Returns true if pause frames that arrive by this port are observed.
    pub(super) fn observes_pause(&self, id: PortId) -> bool {
        self.observes_pauses || self.ports[id.index()].observed.has(EventSet::ARRIVALS)
    }

    /// Handles a packet that has arrived by an observed port. Returns at least [`Due::Observed`], so that
    /// observations do not accumulate.
    #[cold]
    #[inline(never)]
    pub(super) fn arrived_observed(&mut self, id: PortId, packet: PacketId) -> Option<Due> {
        let is_pause = self.packets[packet].flags.has(Flags::PAUSE);
        if !is_pause && self.ports[id.index()].observed.has(EventSet::ARRIVALS) {
            self.note(id.reverse(), Event::Arrived, packet);
        }
        self.deliver(id, packet).or(Some(Due::Observed))
    }
}
