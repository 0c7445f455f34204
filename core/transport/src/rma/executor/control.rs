//! Congestion windows of commands (1RMA paper, §6): the trait of a congestion control, and four
//! implementations.

use crate::Instant;
use crate::rma::Status;

/// The congestion control of an executor.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ControlKind {
    /// Algorithm 1: the local window follows the issue delay, the remote window the remaining delay.
    Delays,
    /// Algorithm 1 without the issue delay: the remote window follows the total delay, and there is no local
    /// window (1RMA paper, Figure 15c).
    TotalDelay,
    /// Windows that keep their initial size.
    Fixed,
    /// No windows and no rate limit.
    None,
}

/// The constants of Algorithm 1, and parameters that the paper does not publish. Times are in nanoseconds,
/// windows in commands of 4 KB.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct CongestionSettings {
    /// The congestion control.
    pub kind: ControlKind,
    /// Additive increase per round trip (paper: 0.25).
    pub increase: f64,
    /// Smallest factor of one decrease (paper: 0.5).
    pub max_decrease: f64,
    /// Weight of the excess over the target delay (paper: 0.8).
    pub beta: f64,
    /// Factor of a decrease after a NACK or timeout (paper: 0.1).
    pub failure_decrease: f64,
    /// Round-trip time of the idle fabric. Each window decreases at most once in it, and the rate is the
    /// window per round trip.
    pub rtt: u64,
    /// Time by which commands may be issued ahead of the rate, so that several leave together (not
    /// published; Linux uses `sk_pacing_shift` for this).
    pub burst: u64,
    /// Target issue delay (not published).
    pub local_target: u64,
    /// Target remote delay (not published).
    pub remote_target: u64,
    /// Initial window (not published).
    pub initial: f64,
    /// Minimum window (not published). A window below 1 spaces commands by more than a round trip.
    pub min: f64,
    /// Maximum window (not published).
    pub max: f64,
    /// Maximum number of windows of servers, per direction and class, that are kept.
    pub destinations: usize,
}

impl CongestionSettings {
    /// The paper's fabric: 100 Gb/s and 5 µs. `docs/reference/rma.md` explains the values that the paper
    /// does not
    /// give.
    pub const fn paper() -> CongestionSettings {
        CongestionSettings {
            kind: ControlKind::Delays,
            increase: 0.25,
            max_decrease: 0.5,
            beta: 0.8,
            failure_decrease: 0.1,
            rtt: 5_000,
            burst: 0,
            local_target: 1_000,
            remote_target: 8_000,
            initial: 13.0,
            min: 0.01,
            // The number of commands that fit the paper's solicitation window, so more are never in service.
            max: 16.0,
            destinations: 1024,
        }
    }

    /// Software engines, with round trips of tens of microseconds and threads that may sleep.
    pub const fn software() -> CongestionSettings {
        CongestionSettings {
            rtt: 50_000,
            burst: 10_000,
            local_target: 100_000,
            remote_target: 400_000,
            initial: 16.0,
            max: 256.0,
            ..CongestionSettings::paper()
        }
    }
}

/// The information that a completion gives to the windows.
#[derive(Copy, Clone, Debug)]
pub struct Signal {
    /// Status of the command.
    pub status: Status,
    /// Nanoseconds until the command entered service.
    pub issue_delay: u64,
    /// Nanoseconds until the command ended.
    pub total_delay: u64,
}

impl Signal {
    /// Returns the nanoseconds spent in the network and at the server.
    pub fn remote_delay(&self) -> u64 {
        self.total_delay.saturating_sub(self.issue_delay)
    }
}

/// The scope of a window.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// This NIC: one window for all transfers.
    Local,
    /// A server, direction and class.
    Remote,
}

/// The congestion control of one window. [`Executor::with_control`](super::Executor::with_control) accepts
/// any implementation, because the paper expects policies to be replaced (§6).
pub trait Control {
    /// Returns a window in its initial state.
    fn new(settings: &CongestionSettings, scope: Scope) -> Self;

    /// Returns the window in commands of 4 KB. It bounds the outstanding commands and determines their rate.
    fn size(&self) -> f64;

    /// Processes the completion of a command that used this window.
    fn completed(&mut self, now: Instant, signal: &Signal);
}

/// Additive increase below a target delay and multiplicative decrease above it, as for both windows of
/// Algorithm 1.
#[derive(Copy, Clone, Debug)]
struct Aimd {
    settings: CongestionSettings,
    target: u64,
    cwnd: f64,
    /// Time of the last decrease; the window does not decrease within one round trip after it.
    decreased: Option<Instant>,
}

impl Aimd {
    fn new(settings: &CongestionSettings, target: u64) -> Aimd {
        Aimd { settings: *settings, target, cwnd: settings.initial, decreased: None }
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
}

/// Algorithm 1: the local window follows the issue delay, the remote window the remaining delay.
#[derive(Copy, Clone, Debug)]
pub struct Delays {
    scope: Scope,
    window: Aimd,
}

impl Control for Delays {
    fn new(settings: &CongestionSettings, scope: Scope) -> Delays {
        let target = match scope {
            Scope::Local => settings.local_target,
            Scope::Remote => settings.remote_target,
        };
        Delays { scope, window: Aimd::new(settings, target) }
    }

    fn size(&self) -> f64 {
        self.window.cwnd
    }

    fn completed(&mut self, now: Instant, signal: &Signal) {
        match (self.scope, signal.status) {
            (Scope::Local, Status::Ok) => self.window.delay(now, signal.issue_delay),
            (Scope::Remote, Status::Ok) => self.window.delay(now, signal.remote_delay()),
            (Scope::Local, Status::DispatchTimeout) | (Scope::Remote, Status::Nack | Status::Timeout) => {
                self.window.failed(now)
            }
            _ => {}
        }
    }
}

/// Algorithm 1 without the local signal: the remote window targets the sum of both target delays and reacts
/// to every failure. The local window is unlimited.
#[derive(Copy, Clone, Debug)]
pub struct TotalDelay(Option<Aimd>);

impl Control for TotalDelay {
    fn new(settings: &CongestionSettings, scope: Scope) -> TotalDelay {
        let window = || Aimd::new(settings, settings.local_target + settings.remote_target);
        TotalDelay((scope == Scope::Remote).then(window))
    }

    fn size(&self) -> f64 {
        self.0.map_or(f64::INFINITY, |window| window.cwnd)
    }

    fn completed(&mut self, now: Instant, signal: &Signal) {
        let Some(window) = &mut self.0 else { return };
        match signal.status {
            Status::Ok => window.delay(now, signal.total_delay),
            Status::DispatchTimeout | Status::Nack | Status::Timeout => window.failed(now),
            _ => {}
        }
    }
}

/// A window that keeps its initial size.
#[derive(Copy, Clone, Debug)]
pub struct Fixed(f64);

impl Control for Fixed {
    fn new(settings: &CongestionSettings, _: Scope) -> Fixed {
        Fixed(settings.initial)
    }

    fn size(&self) -> f64 {
        self.0
    }

    fn completed(&mut self, _: Instant, _: &Signal) {}
}

/// No window and no rate limit.
#[derive(Copy, Clone, Debug)]
pub struct Unlimited;

impl Control for Unlimited {
    fn new(_: &CongestionSettings, _: Scope) -> Unlimited {
        Unlimited
    }

    fn size(&self) -> f64 {
        f64::INFINITY
    }

    fn completed(&mut self, _: Instant, _: &Signal) {}
}

/// The congestion control that [`CongestionSettings::kind`] selects.
#[derive(Copy, Clone, Debug)]
pub enum Chosen {
    /// Control of [`ControlKind::Delays`].
    Delays(Delays),
    /// Control of [`ControlKind::TotalDelay`].
    TotalDelay(TotalDelay),
    /// Control of [`ControlKind::Fixed`].
    Fixed(Fixed),
    /// Control of [`ControlKind::None`].
    None(Unlimited),
}

impl Control for Chosen {
    fn new(settings: &CongestionSettings, scope: Scope) -> Chosen {
        match settings.kind {
            ControlKind::Delays => Chosen::Delays(Delays::new(settings, scope)),
            ControlKind::TotalDelay => Chosen::TotalDelay(TotalDelay::new(settings, scope)),
            ControlKind::Fixed => Chosen::Fixed(Fixed::new(settings, scope)),
            ControlKind::None => Chosen::None(Unlimited),
        }
    }

    fn size(&self) -> f64 {
        match self {
            Chosen::Delays(window) => window.size(),
            Chosen::TotalDelay(window) => window.size(),
            Chosen::Fixed(window) => window.size(),
            Chosen::None(window) => window.size(),
        }
    }

    fn completed(&mut self, now: Instant, signal: &Signal) {
        match self {
            Chosen::Delays(window) => window.completed(now, signal),
            Chosen::TotalDelay(window) => window.completed(now, signal),
            Chosen::Fixed(_) | Chosen::None(_) => {}
        }
    }
}
