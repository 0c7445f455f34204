//! Congestion control of a queue pair: its rate, the marks on arriving packets and CNPs.

use remora_transport::Instant;
use remora_transport::congestion::{Algorithm, Settings};
use remora_wire::frame::Egress;
use remora_wire::{Extensions, Opcode, Psn, bth};

use super::QueuePair;
use crate::congestion::{Congestion, ECT_0, MARKED};
use crate::emit::{Sent, emit_from};
use crate::shared::Shared;

/// Bytes of a CNP's payload, all zero (IBTA vol. 1 annex A17, "congestion notification packet").
const CNP_PAYLOAD: u32 = 16;

impl QueuePair {
    /// Starts the control that the program asked for, or else the NIC's.
    pub(crate) fn control_congestion(&mut self, settings: &Settings) {
        let algorithm = self.attributes.given.congestion.unwrap_or(settings.algorithm);
        // Datagrams have a rate limit, but their sender gets no CNPs.
        let algorithm = if self.machine.path().is_some() { algorithm } else { Algorithm::None };
        let limit = self.attributes.given.rate_limit.unwrap_or(0);
        let any = algorithm != Algorithm::None || limit > 0;
        self.offloads.congestion = any.then(|| Box::new(Congestion::new(algorithm, settings, limit)));
        if let Some(congestion) = self.offloads.congestion.as_mut().filter(|_| settings.window_follows_rate) {
            congestion.scale(self.attributes.parameters.window, settings.line_rate);
        }
        let marking = if settings.ect || algorithm.reads_marks() { ECT_0 } else { 0 };
        if let Some(path) = self.machine.path_mut() {
            let class = &mut path.address_path.route.traffic_class;
            *class = *class & !MARKED | marking;
            path.address_path.headers = None;
        }
    }

    /// The program has set another limit: its control goes on as it was.
    pub(crate) fn limit_rate(&mut self, settings: &Settings) {
        let limit = self.attributes.given.rate_limit.unwrap_or(0);
        if !self.offloads.congestion.as_mut().is_some_and(|congestion| congestion.set_limit(limit)) {
            self.offloads.congestion =
                (limit > 0).then(|| Box::new(Congestion::new(Algorithm::None, settings, limit)));
        }
    }

    /// Returns true if packets with data must wait.
    #[inline]
    pub(crate) fn is_held(&mut self, now: Instant) -> bool {
        match &mut self.offloads.congestion {
            None => false,
            Some(congestion) => {
                congestion.holds(now)
                    || self
                        .machine
                        .rc()
                        .is_some_and(|connection| congestion.fills_window(connection.requester.in_flight()))
            }
        }
    }

    /// A switch has marked a packet from its peer.
    #[cold]
    pub(crate) fn marked(&mut self, now: Instant, shared: &mut Shared) {
        shared.counters_mut().np_ecn_marked_roce_packets += 1;
        self.offloads.notifier.is_due |= self.machine.path().is_some()
            && self.offloads.notifier.marks.marked(now, &shared.defaults().congestion.dcqcn);
        self.choose_machine();
    }

    /// Sends a CNP if one is due, before any other packet of the queue pair. Go-back-N's `respond` has a copy
    /// of this, because a call here costs it 1 % of its instructions.
    pub(crate) fn notify_if_due(&mut self, out: &mut impl Egress, shared: &mut Shared) -> Option<Sent> {
        if !self.offloads.notifier.is_due || !self.may_receive() {
            return None;
        }
        let sent = self.notify_peer(out, shared);
        self.unless_stopped(out, sent)
    }

    /// Records a stopped transmit queue and returns `None` for its packet, because packets of other queues
    /// can still be sent. Always inlined, because most ports have no such queues and the code disappears.
    #[inline(always)]
    pub(crate) fn unless_stopped(&mut self, out: &impl Egress, sent: Option<Sent>) -> Option<Sent> {
        if out.has_space_per_queue()
            && let Some(Sent::Stopped(queue)) = sent
        {
            self.await_queue(queue);
            return None;
        }
        sent
    }

    /// Records that the queue pair waits for this transmit queue.
    #[cold]
    pub(crate) fn await_queue(&mut self, queue: usize) {
        self.schedule.awaited |= 1 << queue;
    }

    /// Sends a CNP.
    #[cold]
    pub(crate) fn notify_peer(&mut self, out: &mut impl Egress, shared: &mut Shared) -> Option<Sent> {
        let Some(path) = self.machine.path_mut() else {
            self.offloads.notifier.is_due = false;
            return None;
        };
        let bth = bth::Repr { becn: true, ..bth::Repr::new(Opcode::CNP, path.remote, Psn::new(0)) };
        let class = path.cnp_class;
        let address_path = &mut path.address_path;
        let counters = shared.counters_mut();
        let none = Extensions::default();
        let zeros = |bytes: &mut [u8]| {
            bytes.fill(0);
            true
        };
        let sent = emit_from(address_path, class, out, counters, &bth, &none, CNP_PAYLOAD, zeros);
        if matches!(sent, Sent::Yes(_)) {
            shared.counters_mut().np_cnp_sent += 1;
            self.offloads.notifier.is_due = false;
        }
        Some(sent)
    }

    /// The peer says that packets of ours were marked.
    #[cold]
    pub(crate) fn notified(&mut self, now: Instant, shared: &mut Shared) {
        let handled = self.offloads.congestion.as_mut().is_some_and(|congestion| congestion.notified(now));
        if handled {
            shared.counters_mut().rp_cnp_handled += 1;
        } else {
            shared.counters_mut().rp_cnp_ignored += 1;
        }
    }
}
