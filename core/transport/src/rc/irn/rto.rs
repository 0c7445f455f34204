//! The retransmission timer of IRN: RTO_low while few packets are in flight, RTO_high otherwise (IRN paper,
//! §3.1), and the time after which a sender gives up.
//!
//! The paper sets both values for its fabric. Over a port with unknown round-trip times they follow
//! measurements (smoothed round trip plus four deviations, as in TCP) in the paper's ratio, with the
//! settings as lower bounds. Each timeout without progress doubles the next one, up to a factor of eight,
//! which limits the load on a dead peer.
//!
//! The timer measures the silence of the peer. It rests while the oldest packet waits for its
//! retransmission, for example for the rate limit or a free frame. That wait does not count as silence if
//! the peer requested the packet. The verbs limit the silence to (`retry_cnt` + 1) times the local ACK
//! timeout. A sender also gives up only after `retry_cnt` retransmissions, or three if the timer has reached
//! its maximum.

use super::{Settings, Timers};
use crate::Instant;
use crate::rc::Seq;
use crate::timers::NEVER_NS;

/// Maximum number of doublings.
const DOUBLINGS: u8 = 3;

/// RTO_high divided by RTO_low, in tenths: 320 µs to 100 µs.
const RATIO_TENTHS: u64 = 32;

/// The retransmission timer of one sending half.
#[derive(Copy, Clone, Debug)]
pub struct Rto {
    low_ns: u64,
    high_ns: u64,
    /// RTO_low and RTO_high in nanoseconds, without doubling.
    times: (u64, u64),
    few: u64,
    measured: bool,
    /// Smoothed round trip and its `deviation` in nanoseconds; 0 before the first measurement.
    smooth: u64,
    deviation: u64,
    /// The packet whose round trip is being measured, and the time at which it was sent.
    probe: Option<(Seq, Instant)>,
    doubled: u8,
    /// True if the running timer is RTO_low.
    short: bool,
    started: Instant,
    deadline: Instant,
    /// Time at which a packet last arrived or transmission started after an idle period. Excludes the time
    /// for which the timer rested.
    progress: Instant,
    /// Time since which the oldest packet waits for its retransmission; `NEVER` if it does not wait.
    resting: Instant,
    /// True if the peer requested the retransmission.
    wanted: bool,
    /// Remaining nanoseconds of the timer when it started to rest; 0 if it had expired or was not running.
    left_ns: u64,
    /// Number of expirations since `progress`.
    expiries: u8,
}

impl Rto {
    /// Returns a timer that is not running.
    pub fn new(settings: &Settings) -> Rto {
        let low_ns = settings.rto_low_ns.max(1);
        let mut made = Rto {
            low_ns,
            high_ns: settings.rto_high_ns.max(low_ns),
            times: (0, 0),
            few: u64::from(settings.few),
            measured: settings.timers == Timers::Measured,
            smooth: 0,
            deviation: 0,
            probe: None,
            doubled: 0,
            short: false,
            started: Instant(0),
            deadline: Instant::NEVER,
            progress: Instant(0),
            resting: Instant::NEVER,
            wanted: false,
            left_ns: 0,
            expiries: 0,
        };
        made.times = made.derive();
        made
    }

    /// Returns the current RTO_low and RTO_high in nanoseconds, without doubling.
    #[inline]
    pub fn times(&self) -> (u64, u64) {
        self.times
    }

    fn derive(&self) -> (u64, u64) {
        if !self.measured {
            return (self.low_ns, self.high_ns);
        }
        // Before the first measurement the timeout is long, because needless retransmissions would delay a
        // slow path further.
        let round =
            if self.smooth == 0 { self.high_ns.saturating_mul(8) } else { self.smooth + 4 * self.deviation };
        let low = self.low_ns.max(round);
        (low, self.high_ns.max(low.saturating_mul(RATIO_TENTHS) / 10))
    }

    #[inline]
    fn span(&self, short: bool) -> u64 {
        let (low, high) = self.times();
        (if short { low } else { high }).saturating_mul(1 << self.doubled)
    }

    #[inline]
    fn arm(&mut self, now: Instant, in_flight: u64) {
        self.short = in_flight <= self.few;
        self.started = now;
        self.deadline = now.after(self.span(self.short));
    }

    /// Returns the time at which the timer expires, or `NEVER`.
    #[inline]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns false if RTO_low is [`NEVER_NS`], which disables the timer.
    pub fn expires(&self) -> bool {
        self.low_ns < NEVER_NS
    }

    /// Returns true if the running timer is RTO_low.
    pub fn is_short(&self) -> bool {
        self.short
    }

    /// Records that a packet was sent; `new` is true for its first transmission.
    #[inline]
    pub fn sent(&mut self, now: Instant, seq: Seq, new: bool, in_flight: u64) {
        if self.deadline == Instant::NEVER {
            self.begin(now, in_flight);
        }
        match self.probe {
            // The acknowledgement could be for either transmission, so it measures nothing (Karn's
            // algorithm, RFC 6298 §3).
            Some((probe, _)) if probe == seq && !new => self.probe = None,
            None if new && self.measured => self.probe = Some((seq, now)),
            _ => {}
        }
    }

    /// Starts the timer because packets are in flight, or continues the silence that a rest interrupted.
    fn begin(&mut self, now: Instant, in_flight: u64) {
        if !self.is_resting() {
            (self.progress, self.expiries) = (now, 0);
        } else if self.wanted {
            self.progress = self.progress.after(now.since(self.resting.max(self.progress)));
        }
        let rested = std::mem::replace(&mut self.resting, Instant::NEVER);
        let left_ns = self.left_ns;
        self.left_ns = 0;
        if rested == Instant::NEVER || left_ns == 0 {
            return self.arm(now, in_flight);
        }
        // A packet that was sent without delay keeps the remaining time. A packet that waited longer gets at
        // least that time, up to RTO_low, for its answer.
        let waited = now.since(rested);
        self.started = self.started.after(waited);
        self.deadline = now.after(left_ns.max(waited.min(self.span(true))));
    }

    /// Stops the timer while the oldest packet waits for its retransmission; `wanted` is true if the peer
    /// requested it.
    pub fn rest(&mut self, now: Instant, wanted: bool) {
        if !self.is_resting() || wanted && !self.wanted {
            (self.resting, self.wanted) = (now, wanted);
        }
        if self.deadline < Instant::NEVER {
            self.left_ns = self.deadline.since(now);
        }
        self.deadline = Instant::NEVER;
    }

    /// Adapts the timer to whether the oldest packet in flight waits for its retransmission; `None` if no
    /// packet is in flight.
    pub fn follow(&mut self, now: Instant, waits: Option<bool>, in_flight: u64) {
        match waits {
            Some(true) => self.rest(now, true),
            Some(false) if self.deadline == Instant::NEVER => self.begin(now, in_flight),
            _ => self.resting = Instant::NEVER,
        }
    }

    /// Returns true if the oldest packet waits for its retransmission.
    #[inline]
    pub fn is_resting(&self) -> bool {
        self.resting < Instant::NEVER
    }

    /// Ends the rest because the peer has no buffer for the waiting packet. The peer then counts as silent.
    #[cold]
    pub fn blocked(&mut self, now: Instant, in_flight: u64) {
        if self.is_resting() {
            self.begin(now, in_flight);
        }
    }

    /// Restarts the timer because the acknowledgement advanced to `una`.
    #[inline]
    pub fn advanced(&mut self, now: Instant, una: Seq, outstanding: bool, in_flight: u64) {
        if let Some((seq, time)) = self.probe
            && seq < una
        {
            self.probe = None;
            self.measure(now.since(time));
        }
        (self.doubled, self.progress, self.expiries) = (0, now, 0);
        if outstanding { self.arm(now, in_flight) } else { self.deadline = Instant::NEVER }
    }

    /// Adds a measured round trip in nanoseconds to the estimate (RFC 6298).
    fn measure(&mut self, round: u64) {
        let round = round.max(1);
        if self.smooth == 0 {
            (self.smooth, self.deviation) = (round, round / 2);
        } else {
            self.deviation = (3 * self.deviation + self.smooth.abs_diff(round)) / 4;
            self.smooth = ((7 * self.smooth + round) / 8).max(1);
        }
        self.times = self.derive();
    }

    /// Extends a running RTO_low to RTO_high, because too many packets are in flight.
    pub fn extend(&mut self) {
        self.short = false;
        self.deadline = self.started.after(self.span(false)).max(Instant(self.deadline.0.saturating_add(1)));
    }

    /// Doubles the timeout and rests until the oldest packet has been retransmitted.
    pub fn expired(&mut self, now: Instant) {
        self.doubled = (self.doubled + 1).min(DOUBLINGS);
        self.expiries = self.expiries.saturating_add(1);
        self.probe = None;
        self.rest(now, false);
    }

    /// Stops the timer because nothing is in flight.
    pub fn stop(&mut self) {
        self.deadline = Instant::NEVER;
        self.resting = Instant::NEVER;
        self.left_ns = 0;
        self.probe = None;
    }

    /// Records the arrival of a packet, which proves that the peer is alive.
    pub fn heard(&mut self, now: Instant) {
        (self.progress, self.expiries) = (now, 0);
    }

    /// Returns the time at which the silence reaches `patience_ns`, or `NEVER` while the timer has expired
    /// fewer than `retries` times and can still be doubled.
    pub fn patience(&self, patience_ns: u64, retries: u8) -> Instant {
        if self.expiries < retries.min(DOUBLINGS) { Instant::NEVER } else { self.progress.after(patience_ns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    fn rto(measured: bool) -> Rto {
        let timers = if measured { Timers::Measured } else { Timers::ByPort };
        Rto::new(&Settings { timers, ..Settings::default() })
    }

    #[test]
    fn few_packets_in_flight_wait_for_the_short_time_and_more_for_the_long_one() {
        for (in_flight, expected) in [(1, 100), (3, 100), (4, 320), (110, 320)] {
            let mut rto = rto(false);
            rto.sent(Instant(0), 0, true, in_flight);
            assert_eq!(rto.deadline(), Instant(expected * US), "{in_flight}");
        }
    }

    #[test]
    fn an_extended_timer_ends_when_the_long_one_would_have() {
        let mut rto = rto(false);
        rto.sent(Instant(5), 0, true, 1);
        rto.sent(Instant(50), 1, true, 9);
        assert!(rto.is_short() && rto.deadline() == Instant(5 + 100 * US));
        rto.extend();
        assert!(!rto.is_short() && rto.deadline() == Instant(5 + 320 * US));
    }

    #[test]
    fn silence_doubles_the_time_up_to_eight_times_and_progress_ends_that() {
        let mut rto = rto(false);
        rto.sent(Instant(0), 0, true, 1);
        let mut spans = Vec::new();
        for _ in 0..5 {
            let now = rto.deadline();
            rto.expired(now);
            rto.sent(now, 0, false, 1);
            spans.push(rto.deadline().since(now) / US);
        }
        assert_eq!(spans, [200, 400, 800, 800, 800]);
        rto.advanced(Instant(1_000_000_000), 1, true, 1);
        assert_eq!(rto.deadline(), Instant(1_000_000_000 + 100 * US));
        rto.advanced(Instant(1_000_000_001), 2, false, 0);
        assert_eq!(rto.deadline(), Instant::NEVER);
    }

    #[test]
    fn measured_times_follow_the_round_trips_and_never_fall_below_the_settings() {
        let mut rto = rto(true);
        assert_eq!(rto.times(), (8 * 320 * US, 8 * 1024 * US));
        let mut now = Instant(0);
        for (seq, round) in (0..100).map(|seq| (seq, 2_000 * US)) {
            rto.sent(now, seq, true, 1);
            now = now.after(round);
            rto.advanced(now, seq + 1, false, 0);
        }
        let (low, high) = rto.times();
        assert!((2_000 * US..2_200 * US).contains(&low), "{low}");
        assert_eq!(high, low * 32 / 10);
        for seq in 100..200 {
            rto.sent(now, seq, true, 1);
            now = now.after(5 * US);
            rto.advanced(now, seq + 1, false, 0);
        }
        assert_eq!(rto.times(), (100 * US, 320 * US));
    }

    #[test]
    fn a_packet_that_was_sent_twice_measures_nothing() {
        let mut rto = rto(true);
        rto.sent(Instant(0), 7, true, 1);
        rto.sent(Instant(1000), 7, false, 1);
        rto.advanced(Instant(1001), 8, false, 0);
        assert_eq!(rto.times(), (8 * 320 * US, 8 * 1024 * US));
    }

    #[test]
    fn patience_counts_from_the_last_sign_of_life() {
        let mut rto = rto(false);
        rto.sent(Instant(10), 0, true, 1);
        rto.expired(Instant(500));
        rto.sent(Instant(500), 0, false, 1);
        assert_eq!(rto.patience(100, 0), Instant(110));
        rto.heard(Instant(600));
        assert_eq!(rto.patience(100, 0), Instant(700));
        assert_eq!(rto.patience(u64::MAX, 0), Instant::NEVER);
        assert_eq!(rto.patience(100, 1), Instant::NEVER, "nothing was retransmitted");
        rto.expired(Instant(800));
        assert_eq!((rto.patience(100, 1), rto.patience(100, 2)), (Instant(700), Instant::NEVER));
    }

    #[test]
    fn what_waits_to_be_sent_again_is_no_silence_of_the_peer() {
        let mut rto = rto(false);
        rto.sent(Instant(0), 0, true, 1);
        rto.follow(Instant(50 * US), Some(true), 1);
        assert_eq!((rto.deadline(), rto.is_resting()), (Instant::NEVER, true));
        // The packet leaves one second later. The timer starts then, and the second does not count as
        // silence.
        rto.sent(Instant(1_000_050 * US), 0, false, 1);
        assert_eq!(rto.deadline(), Instant(1_000_150 * US));
        assert_eq!(rto.patience(500 * US, 0), Instant(1_000_500 * US));
        // After a timeout the silence of the peer continues from before; but the doubled timer starts when
        // the packet leaves.
        rto.expired(Instant(1_000_150 * US));
        rto.sent(Instant(1_001_000 * US), 0, false, 1);
        assert_eq!(rto.deadline(), Instant(1_001_200 * US));
        assert_eq!(rto.patience(500 * US, 0), Instant(1_000_500 * US));
        // A peer without a buffer counts as silent, even if the packet could not be sent.
        rto.expired(Instant(1_001_200 * US));
        rto.blocked(Instant(1_001_210 * US), 1);
        assert_eq!(rto.deadline(), Instant(1_001_610 * US));
        rto.blocked(Instant(1_001_300 * US), 1);
        assert_eq!(rto.deadline(), Instant(1_001_610 * US), "once");
        // The packet had arrived but others are missing: the timer continues with the remaining time.
        rto.follow(Instant(1_001_400 * US), Some(true), 1);
        rto.follow(Instant(1_001_500 * US), Some(false), 1);
        assert_eq!((rto.deadline(), rto.is_resting()), (Instant(1_001_710 * US), false));
    }

    #[test]
    fn what_is_sent_again_at_once_does_not_put_the_timer_off() {
        let mut rto = rto(false);
        rto.sent(Instant(0), 0, true, 9);
        let deadline = rto.deadline();
        rto.follow(Instant(300 * US), Some(true), 9);
        rto.sent(Instant(300 * US), 0, false, 9);
        assert_eq!(rto.deadline(), deadline);
        // A wait of a few microseconds delays the timer by the same time.
        rto.follow(Instant(310 * US), Some(true), 9);
        rto.sent(Instant(315 * US), 0, false, 9);
        assert_eq!(rto.deadline(), deadline.after(5 * US));
    }
}
