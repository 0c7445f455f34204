//! Congestion control: computes the rate at which a queue pair may send.
//!
//! A [`Control`] takes events (bytes were sent, a congestion notification arrived, a round trip was
//! measured, a timer expired) and computes a rate. Its owner applies the rate with a [`Pacer`]. Two
//! algorithms exist, each in its own module: DCQCN reacts to ECN marks of switches, TIMELY to round-trip
//! times.

pub mod dcqcn;
mod pacer;
pub mod timely;

use crate::Instant;
pub use pacer::Pacer;

/// The congestion-control algorithm of a queue pair.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Algorithm {
    /// No congestion control: the queue pair sends as fast as it can.
    #[default]
    None,
    /// DCQCN (Zhu et al., SIGCOMM 2015). The packets are ECN-capable (ECT), and the rate decreases when the
    /// peer answers ECN marks with CNPs. Requires a port that exposes IP headers.
    Dcqcn,
    /// TIMELY (Mittal et al., SIGCOMM 2015). The rate decreases when round-trip times grow.
    Timely,
}

impl Algorithm {
    /// Returns true if the algorithm uses the ECN marks of switches, so that its packets must be ECN-capable
    /// (ECT).
    pub fn reads_marks(self) -> bool {
        match self {
            Algorithm::Dcqcn => true,
            Algorithm::None | Algorithm::Timely => false,
        }
    }
}

/// The settings of both algorithms, and those that they share.
#[derive(Copy, Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Settings {
    /// The algorithm of queue pairs that do not select one.
    pub algorithm: Algorithm,
    /// The initial and largest rate of a queue pair, in bits per second.
    pub line_rate: u64,
    /// The smallest rate of a queue pair, in bits per second.
    pub min_rate: u64,
    /// Marks packets of connected queue pairs as ECN-capable (ECT) even if no algorithm uses the marks.
    /// Default: false.
    pub ect: bool,
    /// Scales the window with the rate, as HPCC's simulator does: a queue pair with congestion control may
    /// have `window * rate / line_rate` packets in flight. Default: false.
    pub window_follows_rate: bool,
    /// Settings of DCQCN.
    pub dcqcn: dcqcn::Settings,
    /// Settings of TIMELY.
    pub timely: timely::Settings,
}

impl Default for Settings {
    /// No congestion control by default. The other values suit a 40 Gb/s fabric, as in the papers.
    fn default() -> Settings {
        Settings {
            algorithm: Algorithm::None,
            line_rate: 40_000_000_000,
            min_rate: 10_000_000,
            ect: false,
            window_follows_rate: false,
            dcqcn: dcqcn::Settings::default(),
            timely: timely::Settings::default(),
        }
    }
}

impl Settings {
    /// DCQCN as in the ns-3 models of HPCC and ConWeave, for links of `line_rate` bits per second:
    /// [`dcqcn::Settings::ns3`] and their `MIN_RATE` of 100 Mb/s.
    #[cfg(feature = "experiments")]
    pub fn ns3(line_rate: u64) -> Settings {
        Settings {
            algorithm: Algorithm::Dcqcn,
            line_rate,
            min_rate: 100_000_000,
            dcqcn: dcqcn::Settings::ns3(),
            ..Settings::default()
        }
    }
}

/// The congestion-control state of one queue pair.
#[derive(Clone, Debug)]
pub enum Control {
    /// No congestion control.
    None,
    /// The reaction point of DCQCN.
    Dcqcn(dcqcn::ReactionPoint),
    /// The rate computation of TIMELY.
    Timely(timely::Timely),
}

impl Control {
    /// Returns the initial state, which sends at line rate.
    pub fn new(algorithm: Algorithm, settings: &Settings) -> Control {
        let Settings { line_rate, min_rate, dcqcn, timely, .. } = settings;
        match algorithm {
            Algorithm::None => Control::None,
            Algorithm::Dcqcn => Control::Dcqcn(dcqcn::ReactionPoint::new(dcqcn, *line_rate, *min_rate)),
            Algorithm::Timely => Control::Timely(timely::Timely::new(timely, *line_rate, *min_rate)),
        }
    }

    /// Returns the rate in bits per second; 0 means unlimited.
    pub fn rate(&self) -> u64 {
        match self {
            Control::None => 0,
            Control::Dcqcn(point) => point.rate(),
            Control::Timely(timely) => timely.rate(),
        }
    }

    /// Records that `bytes` bytes were sent.
    pub fn sent(&mut self, bytes: u32) {
        if let Control::Dcqcn(point) = self {
            point.sent(bytes);
        }
    }

    /// Processes a CNP. Returns false if the algorithm does not use CNPs.
    pub fn notified(&mut self, now: Instant) -> bool {
        let Control::Dcqcn(point) = self else { return false };
        point.notified(now);
        true
    }

    /// Records that a packet was acknowledged `ns` nanoseconds after it was sent.
    pub fn round_trip(&mut self, ns: u64) {
        if let Control::Timely(timely) = self {
            timely.round_trip(ns);
        }
    }

    /// Returns true if the algorithm uses round-trip times, so that the caller must measure them.
    pub fn wants_round_trips(&self) -> bool {
        matches!(self, Control::Timely(_))
    }

    /// Returns the time of the next timer, or [`Instant::NEVER`].
    pub fn deadline(&self) -> Instant {
        if let Control::Dcqcn(point) = self { point.deadline() } else { Instant::NEVER }
    }

    /// Runs the timers that are due at `now`.
    pub fn expire(&mut self, now: Instant) {
        if let Control::Dcqcn(point) = self {
            point.expire(now);
        }
    }
}
