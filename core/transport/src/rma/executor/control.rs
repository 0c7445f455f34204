//! Congestion windows of commands (1RMA paper, Algorithm 1).

use remora_wire::rma::MAX_OPERATION;

use crate::Instant;
use crate::rma::Status;

/// How windows react.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ControlKind {
    /// Algorithm 1: the local window by the issue delay, the remote one by the rest.
    Delays,
    /// The same, told the total delay only: both windows react to it (1RMA paper, Figure 15c).
    TotalDelay,
    /// The initial window, for ever.
    Fixed,
    /// No window and no pace.
    None,
}

/// The constants of Algorithm 1, and what the paper does not give. Times are nanoseconds, windows commands of
/// 4 KB.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct CongestionSettings {
    /// How windows react.
    pub kind: ControlKind,
    /// Additive increase a round trip (paper: 0.25).
    pub increase: f64,
    /// The least factor of one decrease (paper: 0.5).
    pub max_decrease: f64,
    /// Weight of the excess over the target (paper: 0.8).
    pub beta: f64,
    /// The factor of a decrease by a NACK or timeout (paper: 0.1).
    pub failure_decrease: f64,
    /// Round trip of the idle fabric: one decrease in each, and the base of the pace.
    pub rtt: u64,
    /// Issue delay that is aimed at (not published).
    pub local_target: u64,
    /// Remote delay that is aimed at (not published).
    pub remote_target: u64,
    /// First window (not published).
    pub initial: f64,
    /// Least window (not published). Below 1, a command is issued only so often.
    pub min: f64,
    /// Greatest window (not published).
    pub max: f64,
    /// Servers, by direction, whose windows are remembered at once.
    pub destinations: usize,
}

impl CongestionSettings {
    /// For the paper's fabric: 100 Gb/s and 5 us. What it does not give is chosen here (`docs/RMA.md`).
    pub const fn paper() -> CongestionSettings {
        CongestionSettings {
            kind: ControlKind::Delays,
            increase: 0.25,
            max_decrease: 0.5,
            beta: 0.8,
            failure_decrease: 0.1,
            rtt: 5_000,
            local_target: 1_000,
            remote_target: 8_000,
            initial: 13.0,
            min: 0.01,
            max: 64.0,
            destinations: 1024,
        }
    }

    /// For engines in software: round trips of tens of microseconds, and threads that may sleep.
    pub const fn software() -> CongestionSettings {
        CongestionSettings {
            rtt: 50_000,
            local_target: 100_000,
            remote_target: 400_000,
            initial: 16.0,
            max: 256.0,
            ..CongestionSettings::paper()
        }
    }
}

/// What a completion tells the windows.
#[derive(Copy, Clone, Debug)]
pub struct Signal {
    /// How the command ended.
    pub status: Status,
    /// Nanoseconds until it entered service.
    pub issue_delay: u64,
    /// Nanoseconds until it ended.
    pub total_delay: u64,
}

/// One congestion window.
#[derive(Copy, Clone, Debug)]
pub(super) struct Window {
    settings: CongestionSettings,
    target: u64,
    cwnd: f64,
    /// The last decrease; none in the round trip behind it.
    decreased: Option<Instant>,
}

impl Window {
    pub fn new(settings: &CongestionSettings, target: u64) -> Window {
        Window { settings: *settings, target, cwnd: settings.initial, decreased: None }
    }

    /// Its size, in commands of 4 KB.
    pub fn size(&self) -> f64 {
        if self.settings.kind == ControlKind::None { f64::INFINITY } else { self.cwnd }
    }

    /// Reacts to a completion as the local window does.
    pub fn local(&mut self, now: Instant, signal: &Signal) {
        match (self.settings.kind, signal.status) {
            (ControlKind::Delays, Status::Ok) => self.delay(now, signal.issue_delay),
            (ControlKind::TotalDelay, Status::Ok) => self.delay(now, signal.total_delay),
            (ControlKind::Delays | ControlKind::TotalDelay, Status::DispatchTimeout) => self.failed(now),
            _ => {}
        }
    }

    /// Reacts to a completion as the window of a server does.
    pub fn remote(&mut self, now: Instant, signal: &Signal) {
        let remote = signal.total_delay.saturating_sub(signal.issue_delay);
        match (self.settings.kind, signal.status) {
            (ControlKind::Delays, Status::Ok) => self.delay(now, remote),
            (ControlKind::TotalDelay, Status::Ok) => self.delay(now, signal.total_delay),
            (ControlKind::Delays | ControlKind::TotalDelay, Status::Nack | Status::Timeout) => {
                self.failed(now);
            }
            _ => {}
        }
    }

    fn delay(&mut self, now: Instant, delay: u64) {
        let settings = &self.settings;
        if delay < self.target {
            let step = settings.increase;
            self.cwnd += if self.cwnd >= 1.0 { step / self.cwnd } else { step };
            self.cwnd = self.cwnd.min(settings.max);
        } else if self.may_decrease(now) {
            let excess = (delay - self.target) as f64 / delay.max(1) as f64;
            let factor = (1.0 - settings.beta * excess).max(settings.max_decrease);
            self.decrease(now, factor);
        }
    }

    fn failed(&mut self, now: Instant) {
        if self.may_decrease(now) {
            self.decrease(now, self.settings.failure_decrease);
        }
    }

    fn may_decrease(&self, now: Instant) -> bool {
        self.decreased.is_none_or(|last| now.since(last) >= self.settings.rtt)
    }

    fn decrease(&mut self, now: Instant, factor: f64) {
        self.cwnd = (self.cwnd * factor).max(self.settings.min);
        self.decreased = Some(now);
    }

    /// Nanoseconds between commands of `size` bytes at the pace of this window: `size x CWND / RTT`.
    pub fn spacing(&self, size: u32) -> u64 {
        let rtts = f64::from(size) / f64::from(MAX_OPERATION) / self.size();
        (rtts * self.settings.rtt as f64) as u64
    }
}
