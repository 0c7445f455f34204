//! The rate of a queue pair: the lower of the limit that its program set (`rate_limit`) and the rate that its
//! congestion control allows. The control sees packets that leave, round trips and CNPs. The rate holds back
//! requests and responses that carry data. Acknowledgements and CNPs are never held back, but their bytes
//! count.
//!
//! A queue pair without limit and control pays for one test of an `Option`. Every connected queue pair
//! notifies its peer of marked packets; that costs nothing while no packet is marked.

use remora_transport::congestion::{Algorithm, Control, Settings};
use remora_transport::rc::Progress;
use remora_transport::{Instant, Pacer};

/// The ECN field of a packet that a switch may mark (RFC 3168 §5).
pub(crate) const ECT_0: u8 = 0b10;
/// The ECN field of a packet that a switch has marked.
pub(crate) const MARKED: u8 = 0b11;

/// A congestion control, a rate limit, and the pacer that keeps to both.
pub(crate) struct Congestion {
    control: Control,
    /// Bits per second at most, as the program asked; 0: no limit.
    limit: u64,
    pacer: Pacer,
    /// Bits per second that the pacer keeps to; 0: no limit.
    rate: u64,
    /// Packets in flight at line rate, and that rate, where fewer are in flight at a lower rate.
    window: Option<(u32, u64)>,
    /// Something waits for the pacer.
    waiting: bool,
    /// A packet that was sent once and asked for an acknowledgement: one past its sequence number, and when
    /// it left.
    probe: Option<(u64, Instant)>,
}

impl Congestion {
    /// A control by this algorithm; `limit` is the program's, in bits per second, 0 for none.
    pub fn new(algorithm: Algorithm, settings: &Settings, limit: u64) -> Congestion {
        let control = Control::new(algorithm, settings);
        let pacer = Pacer::unlimited();
        let mut made =
            Congestion { control, limit, pacer, rate: 0, window: None, waiting: false, probe: None };
        made.obey();
        made
    }

    /// So many packets are in flight at line rate, and fewer at a lower rate.
    pub fn scale(&mut self, window: u32, line_rate: u64) {
        self.window = Some((window, line_rate.max(1)));
    }

    /// Are as many packets in flight as the rate allows? One may always be.
    #[inline]
    pub fn fills_window(&self, in_flight: u64) -> bool {
        let Some((window, line_rate)) = self.window else { return false };
        let rate = if self.rate == 0 { line_rate } else { self.rate.min(line_rate) };
        let part = (u128::from(window) * u128::from(rate)).div_ceil(u128::from(line_rate));
        u128::from(in_flight) >= part.max(1)
    }

    /// Must packets with data wait for the pacer?
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
            // The answer may be to either of two copies, so it measures nothing.
            self.probe = None;
        } else if progress.acknowledged >= end {
            self.probe = None;
            self.control.round_trip(now.since(at));
            self.obey();
        }
    }

    /// Gives the pacer the rate, if it has changed: the time per byte costs a long division.
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

    /// Sets another limit and keeps the control as it is. False: there is no control to keep.
    pub fn set_limit(&mut self, limit: u64) -> bool {
        if matches!(self.control, Control::None) {
            return false;
        }
        self.limit = limit;
        self.obey();
        true
    }

    /// The peer says that packets of ours were marked. False: there is no control that heeds it.
    pub fn notified(&mut self, now: Instant) -> bool {
        let handled = self.control.notified(now);
        self.obey();
        handled
    }

    /// When `expire` is due.
    pub fn deadline(&self) -> Instant {
        let pacer = if self.waiting { self.pacer.next() } else { Instant::NEVER };
        pacer.min(self.control.deadline())
    }

    /// Its timers.
    pub fn expire(&mut self, now: Instant) {
        self.control.expire(now);
        self.obey();
        self.waiting &= now < self.pacer.next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_that_follows_the_rate_is_full_with_fewer_packets() {
        let settings = Settings { line_rate: 100_000_000_000, ..Settings::default() };
        let mut congestion = Congestion::new(Algorithm::None, &settings, 0);
        assert!(!congestion.fills_window(1_000), "it has none");
        congestion.scale(156, settings.line_rate);
        assert!(congestion.fills_window(156) && !congestion.fills_window(155));
        congestion.limit = settings.line_rate / 4;
        congestion.obey();
        assert!(congestion.fills_window(39) && !congestion.fills_window(38));
        congestion.limit = 1_000_000;
        congestion.obey();
        assert!(congestion.fills_window(1) && !congestion.fills_window(0), "one may always leave");
    }
}
