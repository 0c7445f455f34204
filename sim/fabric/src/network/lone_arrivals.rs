//! Packets that do not arrive in the order of their link: packets that a fault rule delays or drops, and
//! injected packets.

use std::cmp::Reverse;

use super::findings::Cause;
use super::out_of_order::OutOfOrder;
use super::packet::{Flags, Packet, PacketId};
use super::port_id::PortId;
use super::{Due, Network, OUT_OF_ORDER};
use crate::engine::Picos;

impl Network {
    /// Makes a packet arrive at the far end of a port at `time`, as if the link had carried it. Returns
    /// the id of the packet.
    pub fn inject(&mut self, id: PortId, packet: Packet, time: Picos) -> PacketId {
        self.totals.sent.add(packet.charge);
        let added = self.packets.add(packet);
        self.arrive_alone(id, added, time);
        added
    }

    /// Starts the transmission of a packet with [`Flags::FAULT`], which occupies the port like any other.
    #[cold]
    pub(super) fn depart_alone(&mut self, id: PortId, packet: PacketId) {
        let port = &mut self.ports[id.index()];
        let descriptor = &mut self.packets[packet];
        let late = descriptor.arrival;
        descriptor.flags = descriptor.flags.without(Flags::FAULT);
        port.busy_until = self.now.after(port.transmission(u32::from(descriptor.charge)));
        if late == Picos::NEVER {
            return self.lose(packet, Cause::Loss);
        }
        let arrival = port.busy_until.after(port.delay).after(late.0);
        self.arrive_alone(id, packet, arrival);
    }

    fn arrive_alone(&mut self, id: PortId, packet: PacketId, time: Picos) {
        let OutOfOrder { waiting, count } = &mut self.out_of_order;
        waiting.push(Reverse((time, id, *count, packet)));
        *count += 1;
        self.schedule(time, id.0, OUT_OF_ORDER);
    }

    /// Handles the arrival of the first packet that is due.
    pub(super) fn arrive_out_of_order(&mut self) -> Option<Due> {
        let Reverse((_, port, _, packet)) = self.out_of_order.waiting.pop()?;
        self.receive(port, packet)
    }
}
