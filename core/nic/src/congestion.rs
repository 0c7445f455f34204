//! Rate control of a queue pair. The rate is the lower of the program's limit (`rate_limit`) and the rate of
//! the congestion control, which observes sent packets, round trips and CNPs. The rate delays requests, and
//! responses that carry data. Acknowledgements and CNPs are never delayed, but their bytes count.
//!
//! Without a limit and a congestion control, the cost is one test of an `Option` per packet. Every connected
//! queue pair notifies its peer of ECN-marked packets.

use remora_transport::congestion::{Algorithm, Control, Settings};
use remora_transport::rc::Progress;
use remora_transport::{Instant, Pacer};

/// ECN field of an ECN-capable packet, ECT(0) (RFC 3168 §5).
pub(crate) const ECT_0: u8 = 0b10;
/// ECN field of a packet that a switch has marked, CE.
pub(crate) const MARKED: u8 = 0b11;

/// A congestion control, a rate limit, and the pacer that enforces both.
pub(crate) struct Congestion {
    control: Control,
    /// Rate limit of the program in bits per second; 0 means no limit.
    limit: u64,
    pacer: Pacer,
    /// Current rate of the pacer in bits per second; 0 means no limit.
    rate: u64,
    /// Window in packets at line rate, and the line rate. The window shrinks in proportion to the rate.
    /// `None` if the window is independent of the rate.
    window: Option<(u32, u64)>,
    /// A packet is waiting for the pacer.
    waiting: bool,
    /// The packet whose round trip is being measured: the sequence number after it, and the time at which it
    /// was sent. It was sent only once and requested an acknowledgement.
    probe: Option<(u64, Instant)>,
}

impl Congestion {
    /// Creates a congestion control. `limit` is the program's rate limit in bits per second, 0 for none.
    pub(crate) fn new(algorithm: Algorithm, settings: &Settings, limit: u64) -> Congestion {
        let control = Control::new(algorithm, settings);
        let pacer = Pacer::unlimited();
        let mut made =
            Congestion { control, limit, pacer, rate: 0, window: None, waiting: false, probe: None };
        made.obey();
        made
    }

    /// Sets the window in packets at line rate, which shrinks in proportion to the rate.
    pub(crate) fn scale(&mut self, window: u32, line_rate: u64) {
        self.window = Some((window, line_rate.max(1)));
    }

    /// Returns true if the window is full. At least one packet is always allowed.
    #[inline]
    pub(crate) fn fills_window(&self, in_flight: u64) -> bool {
        let Some((window, line_rate)) = self.window else { return false };
        let rate = if self.rate == 0 { line_rate } else { self.rate.min(line_rate) };
        let part = (u128::from(window) * u128::from(rate)).div_ceil(u128::from(line_rate));
        u128::from(in_flight) >= part.max(1)
    }

    /// Returns true if packets with data must wait for the pacer.
    pub(crate) fn holds(&mut self, now: Instant) -> bool {
        self.waiting = now < self.pacer.next();
        self.waiting
    }

    /// Records that a packet of `bytes` bytes was sent.
    pub(crate) fn sent(&mut self, now: Instant, bytes: usize) {
        self.pacer.sent(now, bytes as u32);
        self.control.sent(bytes as u32);
        self.obey();
    }

    /// Records that a request with an acknowledgement request was sent.
    pub(crate) fn ack_requested(&mut self, now: Instant, progress: Progress) {
        if self.probe.is_none() && progress.clean && self.control.wants_round_trips() {
            self.probe = Some((progress.sent, now));
        }
    }

    /// Records a response of the peer, and measures the round trip.
    pub(crate) fn answered(&mut self, now: Instant, progress: Progress) {
        let Some((end, start)) = self.probe else { return };
        if !progress.clean {
            // After a retransmission, the response may belong to either copy, so nothing is measured.
            self.probe = None;
        } else if progress.acknowledged >= end {
            self.probe = None;
            self.control.round_trip(now.since(start));
            self.obey();
        }
    }

    /// Passes a changed rate to the pacer. Unchanged rates are skipped because computing the time per byte
    /// needs a long division.
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

    /// Changes the rate limit and keeps the congestion control. Returns false if there is no congestion
    /// control.
    pub(crate) fn set_limit(&mut self, limit: u64) -> bool {
        if matches!(self.control, Control::None) {
            return false;
        }
        self.limit = limit;
        self.obey();
        true
    }

    /// Processes a CNP of the peer. Returns false if the congestion control does not react to CNPs.
    pub(crate) fn notified(&mut self, now: Instant) -> bool {
        let handled = self.control.notified(now);
        self.obey();
        handled
    }

    /// Returns the time at which `expire` is due.
    pub(crate) fn deadline(&self) -> Instant {
        let pacer = if self.waiting { self.pacer.next() } else { Instant::NEVER };
        pacer.min(self.control.deadline())
    }

    /// Runs the timers that are due at `now`.
    pub(crate) fn expire(&mut self, now: Instant) {
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
