//! The PFC protocol: sends pause and resume frames, and applies received ones.

use std::cmp::Reverse;

use super::buffer::BufferConfig;
use super::event_set::EventSet;
use super::observation::Event;
use super::packet::{Flags, Packet, PacketId};
use super::pause_frame::{Lasts, PauseFrame};
use super::port::{CLASSES, End};
use super::port_id::PortId;
use super::{Due, EXPIRE, Network, REACT, REFRESH};
use crate::engine::Picos;

/// Interval in picoseconds after which a switch checks whether it can end a pause that has no time limit.
const LOOK_AGAIN: u64 = 10 * Picos::MICROSECOND;

impl Network {
    /// Pauses the sender of a class if its account is above the threshold.
    pub(super) fn pause_if_full(&mut self, number: u32, ingress: PortId, class: u8) {
        let Some(pause) = self.config.pause else { return };
        if pause.classes & 1 << class == 0 {
            return;
        }
        let account = &self.accounts[ingress.index()];
        if !self.switches[number as usize].buffer.must_pause(account, class) {
            return;
        }
        let per_port = self.is_per_port();
        let pausing = account.pausing & 1 << class != 0;
        // Pauses of this kind are renewed by each packet that arrives.
        if pausing && !matches!(pause.lasts, Lasts::Picos(_)) {
            return;
        }
        let classes = if per_port { pause.classes } else { 1 << class };
        self.accounts[ingress.index()].pausing |= classes;
        self.send_pause(ingress, classes, true);
        if !pausing && !matches!(pause.lasts, Lasts::Picos(_)) {
            self.refresh_later(ingress);
        }
    }

    fn is_per_port(&self) -> bool {
        matches!(self.config.buffer, BufferConfig::Fifo { per_port: true, .. })
    }

    /// Resumes the classes of a port whose accounts have drained.
    pub(super) fn resume_if_drained(&mut self, number: u32, ingress: PortId) {
        let account = &self.accounts[ingress.index()];
        let buffer = &self.switches[number as usize].buffer;
        let drained = (0..CLASSES as u8)
            .filter(|class| account.pausing & 1 << class != 0 && buffer.may_resume(account, *class))
            .fold(0, |drained, class| drained | 1 << class);
        if drained != 0 {
            self.accounts[ingress.index()].pausing &= !drained;
            self.send_pause(ingress, drained, false);
        }
    }

    fn refresh_later(&mut self, ingress: PortId) {
        let Some(pause) = self.config.pause else { return };
        let wait = match pause.lasts {
            Lasts::Quanta(_) => pause.length(self.ports[ingress.index()].rate) / 2,
            _ => LOOK_AGAIN,
        };
        self.schedule(self.now.after(wait), ingress.0, REFRESH);
    }

    /// Checks a paused sender after half of the pause: resumes it or renews the pause.
    pub(super) fn refresh(&mut self, ingress: PortId) -> Option<Due> {
        let End::Switch(number) = self.ports[ingress.index()].to else { return None };
        self.resume_if_drained(number, ingress);
        let pausing = self.accounts[ingress.index()].pausing;
        if pausing != 0 {
            if self.config.pause.is_some_and(|pause| matches!(pause.lasts, Lasts::Quanta(_))) {
                self.send_pause(ingress, pausing, true);
            }
            self.refresh_later(ingress);
        }
        None
    }

    /// Sends a pause frame, or a resume frame if not `pauses`, to the sender of port `ingress`.
    fn send_pause(&mut self, ingress: PortId, classes: u8, pauses: bool) {
        let Some(pause) = self.config.pause else { return };
        let quanta = match pause.lasts {
            _ if !pauses => 0,
            Lasts::Quanta(quanta) => quanta,
            _ => u16::MAX,
        };
        let count = if pauses { &mut self.totals.pauses } else { &mut self.totals.resumes };
        *count += 1;
        let frame = PauseFrame { classes, quanta }.pack();
        let back = ingress.reverse();
        if pause.charge == 0 {
            if self.ports[back.index()].observed.has(EventSet::DEPARTURES) {
                self.note_pause(back, Event::Departed, self.now, frame);
            }
            let effective = self.now.after(self.ports[back.index()].delay + pause.reaction);
            self.reactions.push(Reverse((effective, back.0, frame)));
            return self.schedule(effective, back.0, REACT);
        }
        let mut packet = Packet::new(0, 7, pause.charge, frame);
        packet.flags = Flags::PAUSE;
        let id = self.packets.add(packet);
        let port = &mut self.ports[back.index()];
        self.packets.push(&mut port.control, id);
        if port.busy_until <= self.now {
            self.transmit(back);
        } else {
            self.expect_free(back);
        }
    }

    /// Handles a pause frame that has arrived by a port.
    pub(super) fn receive_pause(&mut self, id: PortId, packet: PacketId) -> Option<Due> {
        let frame = self.packets[packet].hash;
        let observed = self.observes_pause(id);
        if observed {
            self.note(id.reverse(), Event::Arrived, packet);
        }
        self.packets.remove(packet);
        let due = self.paused(id, frame);
        if observed { due.or(Some(Due::Observed)) } else { due }
    }

    /// Applies a pause frame after the reaction time.
    fn paused(&mut self, id: PortId, frame: u32) -> Option<Due> {
        let reaction = self.config.pause.map_or(0, |pause| pause.reaction);
        if reaction == 0 {
            return self.obey(id, frame);
        }
        let effective = self.now.after(reaction);
        self.reactions.push(Reverse((effective, id.0, frame)));
        self.schedule(effective, id.0, REACT);
        None
    }

    /// Applies the first pause frame whose reaction time has passed.
    pub(super) fn react(&mut self) -> Option<Due> {
        let Reverse((effective, port, frame)) = self.reactions.pop()?;
        let pause = self.config.pause?;
        let id = PortId(port);
        if pause.charge != 0 || !self.observes_pause(id) {
            return self.obey(id, frame);
        }
        let arrived = Picos(effective.0.saturating_sub(pause.reaction));
        self.note_pause(id.reverse(), Event::Arrived, arrived, frame);
        self.obey(id, frame).or(Some(Due::Observed))
    }

    /// Applies a pause frame to the port by which its receiver sends back.
    fn obey(&mut self, id: PortId, frame: u32) -> Option<Due> {
        let PauseFrame { classes, quanta } = PauseFrame::unpack(frame);
        let pause = self.config.pause?;
        let own = id.reverse();
        let port = &mut self.ports[own.index()];
        if quanta == 0 {
            self.watchdog.resumed(own, port.paused & classes, self.now);
            port.paused &= !classes;
            return self.go_on(own);
        }
        self.watchdog.paused(own, !port.paused & classes, self.now);
        port.paused |= classes;
        let until = self.now.after(pause.length(port.rate));
        (0..CLASSES)
            .filter(|class| classes & 1 << class != 0)
            .for_each(|class| port.paused_until[class] = until);
        if until != Picos::NEVER {
            self.schedule(until, own.0, EXPIRE);
        }
        None
    }

    /// Ends the pauses of a port that last until now.
    pub(super) fn expire(&mut self, id: PortId) -> Option<Due> {
        let port = &mut self.ports[id.index()];
        let over = (0..CLASSES)
            .filter(|class| port.paused & 1 << class != 0 && port.paused_until[*class] <= self.now)
            .fold(0, |over, class| over | 1 << class);
        self.watchdog.resumed(id, over, self.now);
        port.paused &= !over;
        if over == 0 { None } else { self.go_on(id) }
    }
}
