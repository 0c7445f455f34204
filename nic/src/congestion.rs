//! Congestion control of a queue pair: its control hears of packets that leave, of round trips and of CNPs, and what it
//! decides holds back requests and responses that carry data. Acknowledgements and CNPs are never held back.
//!
//! A queue pair without control pays for one look at an `Option`. Notifying the peer of marked packets, which costs
//! nothing either while no packet is marked, every connected queue pair does.

use transport::congestion::{Algorithm, Control, Settings};
use transport::rc::Progress;
use transport::{Instant, Pacer};
use wire::frame::Egress;
use wire::{Extensions, Opcode, Psn, bth};

use crate::egress::{Sent, emit_other};
use crate::nic::Shared;
use crate::queue_pair::{Path, QueuePair};
use crate::unreliable::Unreliable;

/// Bytes of a CNP's payload, all zero (IBTA vol. 1 annex A17, "congestion notification packet").
const CNP_PAYLOAD: u32 = 16;

/// The ECN field of a packet that a switch may mark, and of one that it has marked (RFC 3168 §5).
const ECT_0: u8 = 0b10;
pub(crate) const MARKED: u8 = 0b11;

/// A control and what it takes to obey it.
pub(crate) struct Congestion {
    control: Control,
    pacer: Pacer,
    /// Something waits for the pacer.
    waiting: bool,
    /// A packet that was sent once and asked for an acknowledgement: one past its sequence number, and when it left.
    probe: Option<(u64, Instant)>,
}

impl Congestion {
    fn new(algorithm: Algorithm, settings: &Settings) -> Congestion {
        let control = Control::new(algorithm, settings);
        let pacer = Pacer::limited(control.rate());
        Congestion { control, pacer, waiting: false, probe: None }
    }

    /// Must data wait?
    pub fn holds(&mut self, now: Instant) -> bool {
        self.waiting = now < self.pacer.next();
        self.waiting
    }

    /// A packet of so many bytes has left.
    pub fn left(&mut self, now: Instant, bytes: usize) {
        self.pacer.sent(now, bytes as u32);
        self.control.sent(bytes as u32);
        self.obey();
    }

    /// A request that asks for an acknowledgement has left.
    pub fn asked(&mut self, now: Instant, progress: Progress) {
        if self.probe.is_none() && progress.clean && self.control.wants_round_trips() {
            self.probe = Some((progress.sent, now));
        }
    }

    /// An answer has come.
    pub fn answered(&mut self, now: Instant, progress: Progress) {
        let Some((end, at)) = self.probe else { return };
        if !progress.clean {
            // Which of two copies was answered nobody could tell.
            self.probe = None;
        } else if progress.acknowledged >= end {
            self.probe = None;
            self.control.round_trip(now.since(at));
            self.obey();
        }
    }

    fn obey(&mut self) {
        self.pacer.set_rate(self.control.rate());
    }

    fn deadline(&self) -> Instant {
        let pacer = if self.waiting { self.pacer.next() } else { Instant::NEVER };
        pacer.min(self.control.deadline())
    }

    fn expire(&mut self, now: Instant) {
        self.control.expire(now);
        self.obey();
        self.waiting &= now < self.pacer.next();
    }
}

impl QueuePair {
    /// The control that it was told to have, or that all have, from the beginning.
    pub fn control_congestion(&mut self, settings: &Settings) {
        let algorithm = self.attributes.given.congestion.unwrap_or(settings.algorithm);
        let connected = self.path().is_some() && algorithm != Algorithm::None;
        self.congestion = connected.then(|| Box::new(Congestion::new(algorithm, settings)));
        let marking = if connected && algorithm == Algorithm::Dcqcn { ECT_0 } else { 0 };
        if let Some(path) = self.path() {
            let class = &mut path.way.route.traffic_class;
            *class = *class & !MARKED | marking;
            path.way.headers = None;
        }
    }

    /// The way to its peer, if it is connected.
    fn path(&mut self) -> Option<&mut Path> {
        if let Some(connection) = &mut self.connection {
            return Some(&mut connection.path);
        }
        match (&mut self.irn, &mut self.unreliable) {
            (Some(irn), _) => Some(&mut irn.path),
            (_, Some(Unreliable::Connected(connected))) => Some(&mut connected.path),
            _ => None,
        }
    }

    /// Must packets with data wait?
    #[inline]
    pub fn is_held(&mut self, now: Instant) -> bool {
        match &mut self.congestion {
            None => false,
            Some(congestion) => congestion.holds(now),
        }
    }

    /// When its control wants to be called.
    #[inline]
    pub fn congestion_deadline(&self) -> Instant {
        self.congestion.as_ref().map_or(Instant::NEVER, |congestion| congestion.deadline())
    }

    /// Time has come to `now`.
    pub fn expire_congestion(&mut self, now: Instant) {
        if let Some(congestion) = &mut self.congestion {
            congestion.expire(now);
        }
    }

    /// A switch has marked a packet from its peer.
    #[cold]
    pub fn marked(&mut self, now: Instant, shared: &mut Shared) {
        shared.counters.np_ecn_marked_roce_packets += 1;
        self.cnp_due |= self.path().is_some() && self.marks.marked(now, &shared.congestion.dcqcn);
    }

    /// Tells the peer to send more slowly.
    #[cold]
    pub fn notify_peer(&mut self, out: &mut impl Egress, shared: &mut Shared) -> Option<Sent> {
        let Some(path) = self.path() else {
            self.cnp_due = false;
            return None;
        };
        let bth = bth::Repr { becn: true, ..bth::Repr::new(Opcode::CNP, path.remote, Psn::new(0)) };
        let (way, counters) = (&mut path.way, &mut shared.counters);
        let none = Extensions::default();
        let sent = emit_other(way, out, counters, &bth, &none, CNP_PAYLOAD, &mut |bytes| {
            bytes.fill(0);
            true
        });
        if matches!(sent, Sent::Yes(_)) {
            shared.counters.np_cnp_sent += 1;
            self.cnp_due = false;
        }
        Some(sent)
    }

    /// The peer says that packets of ours were marked.
    #[cold]
    pub fn notified(&mut self, now: Instant, shared: &mut Shared) {
        let handled = self.congestion.as_mut().is_some_and(|congestion| {
            let handled = congestion.control.notified(now);
            congestion.obey();
            handled
        });
        if handled {
            shared.counters.rp_cnp_handled += 1;
        } else {
            shared.counters.rp_cnp_ignored += 1;
        }
    }
}
