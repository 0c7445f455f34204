//! Prefetching of the memory that the next events use, because a large network does not fit into the caches.
//!
//! Each step reads only memory that an earlier step has prefetched, a few events before.

use remora_memory::prefetch;

use super::packet::Fifo;
use super::port::{End, Port};
use super::port_id::PortId;
use super::{ARRIVE, FREE, KIND_BITS, Network};
use crate::engine::Event;

/// Number of events between a prefetch and the event that needs it. Ports are prefetched when the preceding
/// bucket of the calendar opens, and packets when their own bucket opens.
const OUTPUT_AHEAD: usize = 4;
const PACKET_AHEAD: usize = 2;

/// The effect of an upcoming event on a port.
#[derive(Copy, Clone)]
enum Soon {
    /// The first packet of the link arrives.
    Arrive(PortId),
    /// The port becomes free.
    Free(PortId),
}

impl Soon {
    #[inline]
    fn of(event: Event) -> Option<Soon> {
        let port = PortId(event.key >> KIND_BITS);
        match event.key & ((1 << KIND_BITS) - 1) {
            ARRIVE => Some(Soon::Arrive(port)),
            FREE => Some(Soon::Free(port)),
            _ => None,
        }
    }
}

impl Network {
    /// Returns the event `ahead` events from now, if it concerns a port and a packet.
    #[inline]
    fn soon(&self, ahead: usize) -> Option<Soon> {
        let soon = self.calendar.soon();
        Soon::of(soon[soon.len().checked_sub(ahead)?])
    }

    /// Prefetches memory for the events after the next ones.
    #[inline]
    pub(super) fn prefetch_soon(&mut self) {
        if self.calendar.has_opened() {
            self.prefetch_bucket();
        }
        match self.soon(OUTPUT_AHEAD) {
            Some(Soon::Arrive(id)) => self.prefetch_output(id),
            Some(Soon::Free(id)) => self.prefetch_queue(id),
            None => {}
        }
        if let Some(Soon::Free(id)) = self.soon(PACKET_AHEAD)
            && let Some(packet) = self.next_queue(id).and_then(|queue| queue.first())
        {
            prefetch(&self.packets[packet]);
        }
    }

    /// Prefetches the packets of the events in a bucket that has just opened, and the ports of the events in
    /// the next bucket.
    fn prefetch_bucket(&self) {
        for event in self.calendar.soon() {
            match Soon::of(*event) {
                Some(Soon::Arrive(id)) => self.prefetch_packet(id),
                Some(Soon::Free(id)) => self.prefetch_inputs(id),
                None => {}
            }
        }
        for event in self.calendar.next_bucket() {
            if let Some(Soon::Arrive(id) | Soon::Free(id)) = Soon::of(event) {
                self.ports[id.index()].prefetch();
            }
        }
    }

    /// Prefetches the packet that arrives by a port, and the state of the switch that receives it.
    #[inline]
    fn prefetch_packet(&self, id: PortId) {
        let port = &self.ports[id.index()];
        if let Some(packet) = port.flight.first() {
            prefetch(&self.packets[packet]);
        }
        if let End::Switch(switch) = port.to {
            prefetch(&self.accounts[id.index()]);
            prefetch(&self.switches[switch as usize]);
        }
    }

    /// Prefetches the packet after the one that arrives by a port, the output port of the arriving packet,
    /// and its queue there.
    #[inline]
    fn prefetch_output(&self, ingress: PortId) {
        let port = &self.ports[ingress.index()];
        let Some(packet) = port.flight.first() else { return };
        if let Some(next) = self.packets.behind(packet) {
            prefetch(&self.packets[next]);
        }
        let End::Switch(switch) = port.to else { return };
        let packet = &self.packets[packet];
        let switch = &self.switches[switch as usize];
        let choices = self.routes.ports(switch.node, u32::from(packet.destination));
        if choices.is_empty() {
            return;
        }
        let balancing = self.config.balancing;
        let Some(choice) = switch.chooser.fixed(balancing, packet, &self.keys, switch.tier, choices.len())
        else {
            return;
        };
        let Some(output) = choices.get(choice) else { return };
        let output = usize::from(*output);
        self.ports[switch.ports[output].index()].prefetch();
        if switch.buffer.is_voq() {
            let input = usize::from(self.numbers[ingress.reverse().index()]);
            switch.voq.prefetch(output, input, packet.class);
        }
    }

    /// Returns the class that a port will probably send next.
    #[inline]
    fn next_class(port: &Port) -> u8 {
        (port.waiting & !port.paused).trailing_zeros() as u8 & 7
    }

    /// Prefetches the waiting inputs of a port that becomes free.
    #[inline]
    fn prefetch_inputs(&self, id: PortId) {
        let port = &self.ports[id.index()];
        let End::Switch(switch) = port.from else { return };
        let output = usize::from(self.numbers[id.index()]);
        self.switches[switch as usize].voq.prefetch_inputs(output, Network::next_class(port));
    }

    /// Returns the queue from which the next packet of a port will probably come.
    #[inline]
    fn next_queue(&self, id: PortId) -> Option<&Fifo> {
        let port = &self.ports[id.index()];
        let class = Network::next_class(port);
        let End::Switch(switch) = port.from else { return None };
        let switch = &self.switches[switch as usize];
        if switch.buffer.is_voq() {
            return switch.voq.next(usize::from(self.numbers[id.index()]), class);
        }
        Some(&port.queues[usize::from(class)].fifo)
    }

    #[inline]
    fn prefetch_queue(&self, id: PortId) {
        if let Some(queue) = self.next_queue(id) {
            prefetch(queue);
        }
    }
}
