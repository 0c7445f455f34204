//! Memory that coming events touch is asked for ahead: a large network is in no cache.

use remora_memory::prefetch;

use super::packet::PacketId;
use super::port::{End, Port};
use super::{ARRIVE, FREE, KIND_BITS, Network};
use crate::engine::Event;

/// So many events ahead a port is asked for, then the packet that is next on it, then the one behind that.
const PORT_AHEAD: usize = 6;
const PACKET_AHEAD: usize = 4;
const NEXT_PACKET_AHEAD: usize = 2;

impl Network {
    /// The port of the event that is so many ahead, if a packet arrives from it or it becomes free.
    #[inline]
    fn port_ahead(&self, ahead: usize) -> Option<(u32, &Port)> {
        let soon = self.calendar.soon();
        let Event { key, .. } = soon[soon.len().checked_sub(ahead)?];
        let port = key >> KIND_BITS;
        matches!(key & ((1 << KIND_BITS) - 1), ARRIVE | FREE).then(|| (port, &self.ports[port as usize]))
    }

    /// Asks for the memory that the events behind the next ones touch: a port first, then the packet on it
    /// and who takes it, then the packet behind that. A large network is in no cache.
    #[inline]
    pub(super) fn prefetch_soon(&self) {
        if let Some((_, port)) = self.port_ahead(PORT_AHEAD) {
            port.prefetch();
        }
        if let Some((id, port)) = self.port_ahead(PACKET_AHEAD)
            && let Some(packet) = port.flight.first()
        {
            prefetch(&self.packets[packet]);
            if let End::Switch(switch) = port.to {
                prefetch(&self.accounts[id as usize]);
                prefetch(&self.switches[switch as usize]);
            }
        }
        if let Some((_, port)) = self.port_ahead(NEXT_PACKET_AHEAD)
            && let Some(next) = port.flight.first().and_then(|packet| self.packets.behind(packet))
        {
            prefetch(&self.packets[next]);
        }
    }

    /// A host at which a packet arrives soon, and the packet.
    #[inline]
    pub fn arrives_soon(&self) -> Option<(u32, PacketId)> {
        let (_, port) = self.port_ahead(PACKET_AHEAD)?;
        let End::Host(host) = port.to else { return None };
        Some((host, port.flight.first()?))
    }
}
