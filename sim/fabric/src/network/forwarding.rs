//! Forwarding: packets arrive from a link, are queued at a switch, and depart on the next link.

use super::buffer::Admission;
use super::event_set::EventSet;
use super::findings::{Cause, Finding};
use super::mark::mark;
use super::observation::Event as PortEvent;
use super::packet::{Flags, PacketId};
use super::port::{End, Port};
use super::port_id::PortId;
use super::{ARRIVE, Due, Network};

impl Network {
    /// Handles the arrival of the first packet on a link.
    #[inline]
    pub(super) fn arrive(&mut self, id: PortId) -> Option<Due> {
        let port = &mut self.ports[id.index()];
        let packet = self.packets.pop(&mut port.flight).expect("an arrival event has a packet on the link");
        if let Some(next) = port.flight.first() {
            let arrival = self.packets[next].arrival;
            self.schedule(arrival, id.0, ARRIVE);
        }
        self.receive(id, packet)
    }

    /// Handles a packet that has reached the far end of a port, unless the link loses it.
    #[inline]
    pub(super) fn receive(&mut self, id: PortId, packet: PacketId) -> Option<Due> {
        let &Port { lossy, up, observed, .. } = self.port(id);
        if lossy || !up {
            let lost = !up || self.random[id.index()].chance(self.loss[id.index()]);
            if lost {
                let cause = if up { Cause::Loss } else { Cause::Down };
                self.lose(packet, cause);
                return None;
            }
        }
        if observed.any() {
            return self.arrived_observed(id, packet);
        }
        self.deliver(id, packet)
    }

    /// Delivers a packet to the node at the far end of a port.
    #[inline]
    pub(super) fn deliver(&mut self, id: PortId, packet: PacketId) -> Option<Due> {
        let descriptor = &self.packets[packet];
        if descriptor.flags.has(Flags::PAUSE) {
            return self.receive_pause(id, packet);
        }
        self.totals.hops += 1;
        match self.ports[id.index()].to {
            End::Host(host) if self.host_nodes[host as usize] == u32::from(descriptor.destination) => {
                Some(Due::Arrived(host, packet))
            }
            // Hosts do not forward packets.
            End::Host(_) => {
                self.lose(packet, Cause::NoPath);
                None
            }
            End::Switch(switch) => {
                self.forward(switch, id, packet);
                None
            }
        }
    }

    pub(super) fn lose(&mut self, id: PacketId, cause: Cause) {
        let packet = &self.packets[id];
        if !packet.flags.has(Flags::PAUSE) {
            self.totals.lost[cause as usize].add(packet.charge);
        }
        self.packets.remove(id);
    }

    /// Forwards a packet that has arrived at a switch: chooses an output port, admits the packet to the
    /// buffer and queues it.
    #[inline]
    pub(super) fn forward(&mut self, number: u32, ingress: PortId, id: PacketId) {
        let switch = &mut self.switches[number as usize];
        let packet = &mut self.packets[id];
        let class = packet.class;
        let charge = u32::from(packet.charge);
        let choices = self.routes.ports(switch.node, u32::from(packet.destination));
        if choices.is_empty() {
            return self.lose(id, Cause::NoPath);
        }
        let balancing = self.config.balancing;
        let tier = switch.tier;
        let choice = switch.chooser.choose(balancing, self.now, packet, &self.keys, tier, choices.len());
        let output = choices[choice];
        let out = switch.ports[usize::from(output)];
        let port = &mut self.ports[out.index()];
        let account = &mut self.accounts[ingress.index()];
        let queued = port.queues[usize::from(class)].bytes;
        if switch.buffer.admit(account, class, charge, queued, port.queued) == Admission::Dropped {
            return self.overflow(number, ingress, out, id);
        }
        packet.ingress = ingress;
        if let Some(config) = &self.config.marks
            && !config.at_dequeue
            && let Some(marks) = &self.marks[out.index()]
        {
            let marked = u64::from(mark(config, marks, packet, queued, &mut self.random[out.index()]));
            port.marked += marked;
            self.totals.marked += marked;
        }
        port.add(class, charge);
        if switch.buffer.is_voq() {
            let input = usize::from(self.numbers[ingress.reverse().index()]);
            switch.voq.push(usize::from(output), input, class, id, &mut self.packets);
        } else {
            self.packets.push(&mut port.queues[usize::from(class)].fifo, id);
        }
        if port.observed.has(EventSet::QUEUES) {
            self.note(out, PortEvent::Enqueued, id);
        }
        let port = &self.ports[out.index()];
        if port.busy_until <= self.now {
            self.transmit(out);
        } else if !port.has_free_event && port.can_send() {
            self.expect_free(out);
        }
        if self.config.pause.is_some() {
            self.pause_if_full(number, ingress, class);
        }
    }

    #[cold]
    pub(super) fn overflow(&mut self, number: u32, ingress: PortId, out: PortId, id: PacketId) {
        self.ports[out.index()].lost += 1;
        if self.ports[out.index()].observed.has(EventSet::QUEUES) {
            self.note(out, PortEvent::Dropped, id);
        }
        let class = self.packets[id].class;
        if self.config.pause.is_some_and(|pause| pause.classes & 1 << class != 0) {
            let switch = self.switches[number as usize].node;
            let port = u32::from(self.numbers[ingress.reverse().index()]);
            self.findings.add(Finding::LosslessDrop { at: self.now, switch, port, class });
        }
        self.lose(id, Cause::Full);
    }

    /// Starts the next transmission of a free port, if a packet may leave.
    #[inline]
    pub(super) fn transmit(&mut self, id: PortId) {
        let port = &mut self.ports[id.index()];
        let observed = port.observed;
        if let Some(control) = self.packets.pop(&mut port.control) {
            self.depart(id, control);
            if observed.has(EventSet::DEPARTURES) {
                self.note(id, PortEvent::Departed, control);
            }
            return;
        }
        let Some(class) = port.choose(self.config.urgent) else { return };
        let number = match port.from {
            End::Host(_) => None,
            End::Switch(number) => Some(number),
        };
        let voq = number.filter(|number| self.switches[*number as usize].buffer.is_voq());
        let popped = match voq {
            Some(number) => {
                let output = usize::from(self.numbers[id.index()]);
                self.switches[number as usize].voq.pop(output, class, &mut self.packets)
            }
            None => self.packets.pop(&mut port.queues[usize::from(class)].fifo),
        };
        let packet = popped.expect("a class with queued bytes has a packet");
        let charge = u32::from(self.packets[packet].charge);
        port.subtract(class, charge);
        self.depart(id, packet);
        if let Some(number) = number {
            self.left(number, id, packet, class, charge);
        }
        if observed.has(EventSet::DEPARTURES.with(EventSet::QUEUES)) {
            self.note(id, PortEvent::Departed, packet);
        }
    }

    /// Starts the transmission of a packet.
    #[inline]
    pub(super) fn depart(&mut self, id: PortId, packet: PacketId) {
        let port = &mut self.ports[id.index()];
        self.watchdog.sent(id);
        let goes_on = port.can_send();
        if self.packets[packet].flags.has(Flags::FAULT) {
            self.depart_alone(id, packet);
        } else {
            let idle = port.flight.is_empty();
            let arrival = port.depart(self.now, packet, &mut self.packets);
            if idle {
                self.schedule(arrival, id.0, ARRIVE);
            }
        }
        if goes_on {
            self.go_on_when_free(id);
        }
    }

    /// Accounts for a packet that has left a switch, and resumes its sender if the buffer has drained enough.
    #[inline]
    pub(super) fn left(&mut self, number: u32, out: PortId, id: PacketId, class: u8, charge: u32) {
        let packet = &mut self.packets[id];
        let ingress = packet.ingress;
        let queued = self.ports[out.index()].queues[usize::from(class)].bytes;
        if let Some(config) = &self.config.marks
            && config.at_dequeue
            && let Some(marks) = &self.marks[out.index()]
        {
            let marked = u64::from(mark(config, marks, packet, queued, &mut self.random[out.index()]));
            self.ports[out.index()].marked += marked;
            self.totals.marked += marked;
        }
        let account = &mut self.accounts[ingress.index()];
        let switch = &mut self.switches[number as usize];
        switch.buffer.leave(account, class, charge, queued);
        if account.pausing != 0 {
            self.resume_if_drained(number, ingress);
        }
    }

    /// Continues a port after one of its pauses has ended.
    pub(super) fn go_on(&mut self, id: PortId) -> Option<Due> {
        let port = &self.ports[id.index()];
        let sender = port.from;
        if port.busy_until <= self.now {
            self.transmit(id);
        } else if port.can_send() {
            self.expect_free(id);
        }
        match sender {
            End::Host(host) => Some(Due::Free(host)),
            End::Switch(_) => None,
        }
    }

    /// Handles the end of a transmission.
    #[inline]
    pub(super) fn free(&mut self, id: PortId) -> Option<Due> {
        let port = &mut self.ports[id.index()];
        port.has_free_event = false;
        if port.busy_until > self.now {
            if port.can_send() {
                self.expect_free(id);
            }
            return None;
        }
        let sender = port.from;
        if port.can_send() {
            self.transmit(id);
        }
        match sender {
            End::Host(host) => Some(Due::Free(host)),
            End::Switch(_) => None,
        }
    }
}
