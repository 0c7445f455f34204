//! Prefetches memory that coming events touch: a large network is in no cache.
//!
//! Each step reads what an earlier step has prefetched, some events before.

use remora_memory::prefetch;

use super::packet::Fifo;
use super::port::{End, Port};
use super::port_id::PortId;
use super::{ARRIVE, FREE, KIND_BITS, Network};
use crate::engine::Event;

/// Events between a step and the event that it is for. Ports are prefetched when the bucket before theirs
/// opens, and packets when their own bucket does.
const OUTPUT_AHEAD: usize = 4;
const PACKET_AHEAD: usize = 2;

/// What a coming event does to a port.
#[derive(Copy, Clone)]
enum Soon {
    /// The first packet of its link arrives.
    Arrive(PortId),
    /// It can send the next packet.
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
    /// The event that is so many ahead, if it concerns a port and a packet.
    #[inline]
    fn soon(&self, ahead: usize) -> Option<Soon> {
        let soon = self.calendar.soon();
        Soon::of(soon[soon.len().checked_sub(ahead)?])
    }

    /// Prefetches the memory that the events behind the next ones touch.
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

    /// A bucket has opened: prefetches the packets of its events, and the ports of the next bucket's.
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

    /// The packet that arrives from a port, and who takes it.
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

    /// The packet behind the one that arrives from a port, the port by which that one goes on, and its queue
    /// there.
    #[inline]
    fn prefetch_output(&self, ingress: PortId) {
        let port = &self.ports[ingress.index()];
        let Some(packet) = port.flight.first() else { return };
        if let Some(next) = self.packets.behind(packet) {
            prefetch(&self.packets[next]);
        }
        let End::Switch(switch) = port.to else { return };
        let (packet, switch) = (&self.packets[packet], &self.switches[switch as usize]);
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

    /// The class that a port sends next, most likely.
    #[inline]
    fn next_class(port: &Port) -> u8 {
        (port.waiting & !port.paused).trailing_zeros() as u8 & 7
    }

    /// Who waits for a port that is free soon.
    #[inline]
    fn prefetch_inputs(&self, id: PortId) {
        let port = &self.ports[id.index()];
        let End::Switch(switch) = port.from else { return };
        let output = usize::from(self.numbers[id.index()]);
        self.switches[switch as usize].voq.prefetch_inputs(output, Network::next_class(port));
    }

    /// The queue that the next packet of a port leaves, most likely.
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
