//! The rate of a queue pair: the limit that its program set (`rate_limit`), and what its congestion control allows, which
//! hears of packets that leave, of round trips and of CNPs. The lower of the two holds back requests and responses that carry
//! data. Acknowledgements and CNPs are never held back, but what leaves counts.
//!
//! A queue pair without limit and control pays for one look at an `Option`. Notifying the peer of marked packets, which costs
//! nothing either while no packet is marked, every connected queue pair does.

use remora_transport::congestion::{Algorithm, Control, Settings};
use remora_transport::rc::Progress;
use remora_transport::{Instant, Pacer};
use remora_wire::frame::Egress;
use remora_wire::{Extensions, Opcode, Psn, bth};

use crate::egress::{Sent, emit_outlined};
use crate::nic::Shared;
use crate::queue_pair::{PeerPath, QueuePair};
use crate::unreliable::Unreliable;

/// Bytes of a CNP's payload, all zero (IBTA vol. 1 annex A17, "congestion notification packet").
const CNP_PAYLOAD: u32 = 16;

/// The ECN field of a packet that a switch may mark, and of one that it has marked (RFC 3168 §5).
const ECT_0: u8 = 0b10;
pub(crate) const MARKED: u8 = 0b11;

/// A control, a limit, and what it takes to obey both.
pub(crate) struct Congestion {
    control: Control,
    /// Bits per second at most, as the program asked; 0: no limit.
    limit: u64,
    pacer: Pacer,
    /// Bits per second that the pacer keeps to; 0: no limit.
    rate: u64,
    /// Something waits for the pacer.
    waiting: bool,
    /// A packet that was sent once and asked for an acknowledgement: one past its sequence number, and when it left.
    probe: Option<(u64, Instant)>,
}

impl Congestion {
    fn new(algorithm: Algorithm, settings: &Settings, limit: u64) -> Congestion {
        let control = Control::new(algorithm, settings);
        let pacer = Pacer::unlimited();
        let mut made = Congestion { control, limit, pacer, rate: 0, waiting: false, probe: None };
        made.obey();
        made
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

    /// Takes over the rate if it has changed: what it costs a byte is a long division.
    #[inline]
    fn obey(&mut self) {
        let rate = match (self.control.rate(), self.limit) {
            (0, rate) | (rate, 0) => rate,
            (rate, limit) => rate.min(limit),
        };
        if rate != self.rate {
            self.rate = rate;
            self.pacer.set_rate(rate);
        }
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
        // Datagrams are limited, but nobody tells their sender of congestion.
        let algorithm = if self.path().is_some() { algorithm } else { Algorithm::None };
        let limit = self.attributes.given.rate_limit.unwrap_or(0);
        let any = algorithm != Algorithm::None || limit > 0;
        self.congestion = any.then(|| Box::new(Congestion::new(algorithm, settings, limit)));
        let marking = if algorithm == Algorithm::Dcqcn { ECT_0 } else { 0 };
        if let Some(path) = self.path() {
            let class = &mut path.address_path.route.traffic_class;
            *class = *class & !MARKED | marking;
            path.address_path.headers = None;
        }
    }

    /// The program has set another limit: its control goes on as it was.
    pub fn limit_rate(&mut self, settings: &Settings) {
        let limit = self.attributes.given.rate_limit.unwrap_or(0);
        match &mut self.congestion {
            Some(congestion) if !matches!(congestion.control, Control::None) => {
                congestion.limit = limit;
                congestion.obey();
            }
            bare => *bare = (limit > 0).then(|| Box::new(Congestion::new(Algorithm::None, settings, limit))),
        }
    }

    /// The way to its peer, if it is connected.
    fn path(&mut self) -> Option<&mut PeerPath> {
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

    /// Tells the peer to send more slowly, if that is due: all that an unreliable queue pair answers.
    pub fn notify_if_due(&mut self, out: &mut impl Egress, shared: &mut Shared) -> Option<Sent> {
        if self.cnp_due && self.may_receive() { self.notify_peer(out, shared) } else { None }
    }

    /// Tells the peer to send more slowly.
    #[cold]
    pub fn notify_peer(&mut self, out: &mut impl Egress, shared: &mut Shared) -> Option<Sent> {
        let Some(path) = self.path() else {
            self.cnp_due = false;
            return None;
        };
        let bth = bth::Repr { becn: true, ..bth::Repr::new(Opcode::CNP, path.remote, Psn::new(0)) };
        let (address_path, counters) = (&mut path.address_path, &mut shared.counters);
        let none = Extensions::default();
        let sent = emit_outlined(address_path, out, counters, &bth, &none, CNP_PAYLOAD, &mut |bytes| {
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
