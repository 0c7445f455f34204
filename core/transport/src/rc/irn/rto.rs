//! The retransmission timer: RTO_low while few packets are in flight, RTO_high otherwise (IRN paper, §3.1),
//! and how long a sender retries at all.
//!
//! The paper fixes both times by the fabric. Over a port with unknown round trips they follow the measured
//! ones (smoothed round trip and four deviations, as in TCP), in the paper's ratio, and the settings are
//! their least. Each timeout without progress doubles the next, up to eight times, so that a dead peer costs
//! little.
//!
//! The timer measures the silence of the other side. While the oldest packet waits to be sent again, for a
//! rate, its turn or a free frame, the timer rests; that wait is no silence if the other side has asked for
//! the packet. The verbs, not the paper, limit the silence: `retry_cnt` + 1 times the local ACK timeout, and
//! not before a packet was sent again `retry_cnt` times, or three times if the timer has doubled as often as
//! it may.

use super::{Settings, Timers};
use crate::Instant;
use crate::rc::Seq;
use crate::timers::NEVER_NS;

/// Doublings of the timer at most.
const DOUBLINGS: u8 = 3;

/// RTO_high over RTO_low, in tenths: 320 µs over 100 µs.
const RATIO_TENTHS: u64 = 32;

/// The timer of one sending half.
#[derive(Copy, Clone, Debug)]
pub struct Rto {
    low_ns: u64,
    high_ns: u64,
    /// RTO_low and RTO_high as the round trips have them, without doubling.
    times: (u64, u64),
    few: u64,
    measured: bool,
    /// Smoothed round trip and deviation in nanoseconds; 0: none measured yet.
    smooth: u64,
    deviation: u64,
    /// A packet that was sent once, and when.
    probe: Option<(Seq, Instant)>,
    doubled: u8,
    /// The timer that runs is RTO_low.
    short: bool,
    started: Instant,
    deadline: Instant,
    /// When a packet last arrived, or transmission began after silence; later by the time for which the timer
    /// rested since.
    progress: Instant,
    /// Since when the oldest packet waits to be sent again; `NEVER`: it does not.
    resting: Instant,
    /// It waits because the other side has asked for it.
    wanted: bool,
    /// Nanoseconds that the timer had left when it came to rest; 0: it had expired, or did not run.
    left_ns: u64,
    /// Times that it has expired since.
    expiries: u8,
}

impl Rto {
    /// A timer that does not run.
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

    /// RTO_low and RTO_high as they are now, without doubling.
    #[inline]
    pub fn times(&self) -> (u64, u64) {
        self.times
    }

    fn derive(&self) -> (u64, u64) {
        if !self.measured {
            return (self.low_ns, self.high_ns);
        }
        // Nothing measured: patient, since what is sent twice on a slow path only delays it further.
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

    /// When it expires.
    #[inline]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Does it expire at all? Not if RTO_low is [`NEVER_NS`].
    pub fn expires(&self) -> bool {
        self.low_ns < NEVER_NS
    }

    /// Is RTO_low running?
    pub fn is_short(&self) -> bool {
        self.short
    }

    /// A packet has left; `new`: for the first time.
    #[inline]
    pub fn sent(&mut self, now: Instant, seq: Seq, new: bool, in_flight: u64) {
        if self.deadline == Instant::NEVER {
            self.begin(now, in_flight);
        }
        match self.probe {
            // The answer may be to either copy, so it measures nothing.
            Some((probe, _)) if probe == seq && !new => self.probe = None,
            None if new && self.measured => self.probe = Some((seq, now)),
            _ => {}
        }
    }

    /// Something is on the way where nothing was: silence begins, or goes on where it was interrupted.
    fn begin(&mut self, now: Instant, in_flight: u64) {
        if !self.is_resting() {
            (self.progress, self.expiries) = (now, 0);
        } else if self.wanted {
            self.progress = self.progress.after(now.since(self.resting.max(self.progress)));
        }
        let (rested, left_ns) = (std::mem::replace(&mut self.resting, Instant::NEVER), self.left_ns);
        self.left_ns = 0;
        if rested == Instant::NEVER || left_ns == 0 {
            return self.arm(now, in_flight);
        }
        // What left at once goes on with the time that was left; what waited for long has RTO_low for its
        // answer.
        let waited = now.since(rested);
        self.started = self.started.after(waited);
        self.deadline = now.after(left_ns.max(waited.min(self.span(true))));
    }

    /// The oldest packet waits to be sent again; `wanted`: the other side has said so.
    pub fn rest(&mut self, now: Instant, wanted: bool) {
        if !self.is_resting() || wanted && !self.wanted {
            (self.resting, self.wanted) = (now, wanted);
        }
        if self.deadline < Instant::NEVER {
            self.left_ns = self.deadline.since(now);
        }
        self.deadline = Instant::NEVER;
    }

    /// The oldest of the packets on the way waits to be sent again, or does not; `None`: there are none.
    pub fn follow(&mut self, now: Instant, waits: Option<bool>, in_flight: u64) {
        match waits {
            Some(true) => self.rest(now, true),
            Some(false) if self.deadline == Instant::NEVER => self.begin(now, in_flight),
            _ => self.resting = Instant::NEVER,
        }
    }

    /// Does the oldest packet wait to be sent again?
    #[inline]
    pub fn is_resting(&self) -> bool {
        self.resting < Instant::NEVER
    }

    /// The other side has no buffer for the packet that waits to be sent again: it is as silent as if it did
    /// not answer.
    #[cold]
    pub fn blocked(&mut self, now: Instant, in_flight: u64) {
        if self.is_resting() {
            self.begin(now, in_flight);
        }
    }

    /// Everything before `una` is acknowledged, and that is news.
    #[inline]
    pub fn advanced(&mut self, now: Instant, una: Seq, outstanding: bool, in_flight: u64) {
        if let Some((seq, at)) = self.probe
            && seq < una
        {
            self.probe = None;
            self.measure(now.since(at));
        }
        (self.doubled, self.progress, self.expiries) = (0, now, 0);
        if outstanding { self.arm(now, in_flight) } else { self.deadline = Instant::NEVER }
    }

    /// A round trip took so long (RFC 6298's estimator, in nanoseconds).
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

    /// It was RTO_low, but too many packets are in flight: it runs on to RTO_high.
    pub fn extend(&mut self) {
        self.short = false;
        self.deadline = self.started.after(self.span(false)).max(Instant(self.deadline.0.saturating_add(1)));
    }

    /// It has expired: it rests until the oldest packet has left again.
    pub fn expired(&mut self, now: Instant) {
        self.doubled = (self.doubled + 1).min(DOUBLINGS);
        self.expiries = self.expiries.saturating_add(1);
        self.probe = None;
        self.rest(now, false);
    }

    /// Nothing is waited for.
    pub fn stop(&mut self) {
        self.deadline = Instant::NEVER;
        self.resting = Instant::NEVER;
        self.left_ns = 0;
        self.probe = None;
    }

    /// A packet has arrived that shows that the peer is alive.
    pub fn heard(&mut self, now: Instant) {
        (self.progress, self.expiries) = (now, 0);
    }

    /// When silence has lasted `patience_ns`; never before something was sent again in it, `retries` times or
    /// until the timer grows no more.
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
        assert_eq!(rto.patience(100, 1), Instant::NEVER, "nothing was sent again");
        rto.expired(Instant(800));
        assert_eq!((rto.patience(100, 1), rto.patience(100, 2)), (Instant(700), Instant::NEVER));
    }

    #[test]
    fn what_waits_to_be_sent_again_is_no_silence_of_the_peer() {
        let mut rto = rto(false);
        rto.sent(Instant(0), 0, true, 1);
        rto.follow(Instant(50 * US), Some(true), 1);
        assert_eq!((rto.deadline(), rto.is_resting()), (Instant::NEVER, true));
        // It leaves a second later: the timer begins then, and the second is no part of the silence.
        rto.sent(Instant(1_000_050 * US), 0, false, 1);
        assert_eq!(rto.deadline(), Instant(1_000_150 * US));
        assert_eq!(rto.patience(500 * US, 0), Instant(1_000_500 * US));
        // After silence it is the peer that has not answered the first time; but the timer, doubled, still
        // begins when it leaves.
        rto.expired(Instant(1_000_150 * US));
        rto.sent(Instant(1_001_000 * US), 0, false, 1);
        assert_eq!(rto.deadline(), Instant(1_001_200 * US));
        assert_eq!(rto.patience(500 * US, 0), Instant(1_000_500 * US));
        // A peer without a buffer is silent, whether the packet has left or not.
        rto.expired(Instant(1_001_200 * US));
        rto.blocked(Instant(1_001_210 * US), 1);
        assert_eq!(rto.deadline(), Instant(1_001_610 * US));
        rto.blocked(Instant(1_001_300 * US), 1);
        assert_eq!(rto.deadline(), Instant(1_001_610 * US), "once");
        // It has arrived all the same, others have not: the timer goes on with what was left.
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
        // One that waits for a few microseconds puts it off by as much.
        rto.follow(Instant(310 * US), Some(true), 9);
        rto.sent(Instant(315 * US), 0, false, 9);
        assert_eq!(rto.deadline(), deadline.after(5 * US));
    }
}
