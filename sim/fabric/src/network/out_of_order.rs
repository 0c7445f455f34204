//! Packets that do not come in the order of their link: those that a fault rule delays or loses, and those
//! that no host has sent.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::packet::{Flags, Packet, PacketId};
use super::port_id::PortId;
use super::watch::Cause;
use super::{Due, Network, OUT_OF_ORDER};
use crate::engine::Picos;

/// When a packet arrives and by which port; those of one time and port in the order in which they were put
/// in.
type Arrival = (Picos, PortId, u64, PacketId);

/// Packets that arrive by themselves.
#[derive(Default)]
pub struct OutOfOrder {
    waiting: BinaryHeap<Reverse<Arrival>>,
    count: u64,
}

impl Network {
    /// Makes a packet arrive at the far end of a port at a time, as if it came over the link. Returns its
    /// place in tables beside this one.
    pub fn inject(&mut self, id: PortId, packet: Packet, at: Picos) -> PacketId {
        self.totals.sent.add(packet.charge);
        let added = self.packets.add(packet);
        self.arrive_alone(id, added, at);
        added
    }

    /// A packet of [`Flags::FAULT`] begins to leave by a port, and takes its time there like others.
    #[cold]
    pub(super) fn depart_alone(&mut self, id: PortId, packet: PacketId) {
        let port = &mut self.ports[id.index()];
        let found = &mut self.packets[packet];
        let late = found.arrival;
        found.flags = found.flags.without(Flags::FAULT);
        port.busy_until = self.now.after(port.transmission(u32::from(found.charge)));
        if late == Picos::NEVER {
            return self.lose(packet, Cause::Loss);
        }
        let at = port.busy_until.after(port.delay).after(late.0);
        self.arrive_alone(id, packet, at);
    }

    fn arrive_alone(&mut self, id: PortId, packet: PacketId, at: Picos) {
        let OutOfOrder { waiting, count } = &mut self.out_of_order;
        waiting.push(Reverse((at, id, *count, packet)));
        *count += 1;
        self.at(at, id.0, OUT_OF_ORDER);
    }

    /// The first of the packets that arrive by themselves does.
    pub(super) fn arrive_out_of_order(&mut self) -> Option<Due> {
        let Reverse((_, port, _, packet)) = self.out_of_order.waiting.pop()?;
        self.receive(port, packet)
    }
}
