//! Congestion control: how fast one queue pair may send.
//!
//! A [`Control`] takes events (bytes left, a congestion notification came, a round trip was measured, time
//! passed) and computes a rate, by which its owner paces. There are two algorithms, each in a file of its
//! own: DCQCN, which uses the marks of switches, and TIMELY, which uses round trips.

pub mod dcqcn;
mod pacer;
pub mod timely;

use crate::Instant;
pub use pacer::Pacer;

/// Which control a queue pair has.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// None: it sends as fast as it can.
    #[default]
    None,
    /// DCQCN (Zhu et al., SIGCOMM 2015). Its packets say that they may be marked (ECT), and it slows when the
    /// peer answers marks with CNPs. Needs a port that shows IP headers.
    Dcqcn,
    /// TIMELY (Mittal et al., SIGCOMM 2015). It slows when round trips grow.
    Timely,
}

impl Algorithm {
    /// Does it use the marks of switches, so that packets must say that they may be marked (ECT)?
    pub fn reads_marks(self) -> bool {
        match self {
            Algorithm::Dcqcn => true,
            Algorithm::None | Algorithm::Timely => false,
        }
    }
}

/// The parameters of both algorithms, and what they have in common.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The algorithm of queue pairs that ask for none.
    pub algorithm: Algorithm,
    /// Bits per second at which a queue pair begins, and more than which it never sends.
    pub line_rate: u64,
    /// Bits per second less than which it never sends.
    pub min_rate: u64,
    /// Connections' packets may be marked (ECT) also where no control uses the marks. Default: no.
    pub ect: bool,
    /// With a control, fewer packets are in flight than a queue pair's window has: the part of it that the
    /// rate is of the line's, as in HPCC's programs. Default: no.
    pub window_follows_rate: bool,
    /// Those of DCQCN.
    pub dcqcn: dcqcn::Settings,
    /// Those of TIMELY.
    pub timely: timely::Settings,
}

impl Default for Settings {
    /// No control; for those who ask, a 40 Gb/s fabric as in the papers.
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
    /// DCQCN as the ns-3 models of HPCC and ConWeave have it, at links of so many bits per second:
    /// [`dcqcn::Settings::ns3`], and their `MIN_RATE` of 100 Mb/s.
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

/// The control of one queue pair.
#[derive(Clone, Debug)]
pub enum Control {
    /// No limit.
    None,
    /// DCQCN's reaction point.
    Dcqcn(dcqcn::ReactionPoint),
    /// TIMELY's rate.
    Timely(timely::Timely),
}

impl Control {
    /// A control at its start: it sends at line rate.
    pub fn new(algorithm: Algorithm, settings: &Settings) -> Control {
        match algorithm {
            Algorithm::None => Control::None,
            Algorithm::Dcqcn => Control::Dcqcn(dcqcn::ReactionPoint::new(settings)),
            Algorithm::Timely => Control::Timely(timely::Timely::new(settings)),
        }
    }

    /// Bits per second; 0: no limit.
    pub fn rate(&self) -> u64 {
        match self {
            Control::None => 0,
            Control::Dcqcn(point) => point.rate(),
            Control::Timely(timely) => timely.rate(),
        }
    }

    /// Packets of so many bytes have left.
    pub fn sent(&mut self, bytes: u32) {
        if let Control::Dcqcn(point) = self {
            point.sent(bytes);
        }
    }

    /// A CNP has arrived. False: this control does not use them.
    pub fn notified(&mut self, now: Instant) -> bool {
        let Control::Dcqcn(point) = self else { return false };
        point.notified(now);
        true
    }

    /// A packet was acknowledged `ns` nanoseconds after it left.
    pub fn round_trip(&mut self, ns: u64) {
        if let Control::Timely(timely) = self {
            timely.round_trip(ns);
        }
    }

    /// Are round trips of any use?
    pub fn wants_round_trips(&self) -> bool {
        matches!(self, Control::Timely(_))
    }

    /// When `expire` is due.
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
