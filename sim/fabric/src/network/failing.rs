//! Link failures: links go down and come up at given times.

use super::event_set::EventSet;
use super::failure::Failure;
use super::findings::Cause;
use super::observation::Event;
use super::port_id::PortId;
use super::{Due, Network};
use crate::topology::Routes;

impl Network {
    /// Takes a link down or up. Packets on the link and packets queued for it are lost. All nodes use new
    /// routes immediately: the convergence of routing is not modelled.
    pub(super) fn fail(&mut self, number: u32) -> Option<Due> {
        let Failure { link, up, .. } = self.failures[number as usize];
        for id in [PortId(2 * link), PortId(2 * link + 1)] {
            self.ports[id.index()].up = up;
            if !up {
                self.empty(id);
            }
        }
        let ports = &self.ports;
        let is_up = |link: u32| ports[2 * link as usize].up;
        self.routes = Routes::new(&self.topology, is_up).expect("the topology was valid before");
        // Packets that wait for the link at a host may leave by another one now.
        for id in [PortId(2 * link), PortId(2 * link + 1)] {
            if let super::End::Host(host) = self.ports[id.index()].from {
                self.wake(host, self.now);
            }
        }
        None
    }

    /// Drops the packets queued for a port and ends its pauses, because no resume frame can arrive any more.
    /// Packets already on the link are dropped when they would arrive.
    fn empty(&mut self, id: PortId) {
        let number = match self.ports[id.index()].from {
            super::End::Switch(number) => Some(number),
            super::End::Host(_) => None,
        };
        while let Some(control) = self.packets.pop(&mut self.ports[id.index()].control) {
            self.packets.remove(control);
        }
        let paused = std::mem::take(&mut self.ports[id.index()].paused);
        self.watchdog.resumed(id, paused, self.now);
        // The far end no longer pauses this port either.
        self.accounts[id.index()].pausing = 0;
        while let Some(class) = self.ports[id.index()].choose(0) {
            let popped = match number {
                Some(number) if self.switches[number as usize].buffer.is_voq() => {
                    let output = usize::from(self.numbers[id.index()]);
                    self.switches[number as usize].voq.pop(output, class, &mut self.packets)
                }
                _ => self.packets.pop(&mut self.ports[id.index()].queues[usize::from(class)].fifo),
            };
            let packet = popped.expect("a class with queued bytes has a packet");
            let charge = u32::from(self.packets[packet].charge);
            self.ports[id.index()].subtract(class, charge);
            if let Some(number) = number {
                self.left(number, id, packet, class, charge);
            }
            if self.ports[id.index()].observed.has(EventSet::QUEUES) {
                self.note(id, Event::Dropped, packet);
            }
            self.lose(packet, Cause::Down);
        }
    }
}
