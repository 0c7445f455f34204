//! Congestion windows of commands (1RMA paper, §6): the trait of whoever decides about one, and the four that
//! ship.

use crate::Instant;
use crate::rma::Status;

/// How windows react.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ControlKind {
    /// Algorithm 1: the local window by the issue delay, the remote one by the rest.
    Delays,
    /// The same, told the total delay only: the remote window reacts to it, and there is no local one (1RMA
    /// paper, Figure 15c).
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
    /// How far ahead of the pace commands may be issued, so that several leave together (not published; Linux
    /// does so by `sk_pacing_shift`).
    pub burst: u64,
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
            burst: 0,
            local_target: 1_000,
            remote_target: 8_000,
            initial: 13.0,
            min: 0.01,
            // As many as the paper's solicitation window holds: more are never in service.
            max: 16.0,
            destinations: 1024,
        }
    }

    /// For engines in software: round trips of tens of microseconds, and threads that may sleep.
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

impl Signal {
    /// Nanoseconds in the network and at the server.
    pub fn remote_delay(&self) -> u64 {
        self.total_delay.saturating_sub(self.issue_delay)
    }
}

/// Whose window it is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// This NIC's: one for all transfers.
    Local,
    /// A server's, in one direction.
    Remote,
}

/// Who decides about one congestion window. [`Executor::with_control`](super::Executor::with_control) takes
/// any; the paper wants policies to be replaced (§6).
pub trait Control {
    /// A window as it begins.
    fn new(settings: &CongestionSettings, scope: Scope) -> Self;

    /// Its size, in commands of 4 KB. It bounds what is outstanding and gives the pace.
    fn size(&self) -> f64;

    /// A command that it counted has ended.
    fn completed(&mut self, now: Instant, signal: &Signal);
}

/// Additive increase below a target delay, multiplicative decrease above it: what both windows of Algorithm 1
/// do.
#[derive(Copy, Clone, Debug)]
struct Aimd {
    settings: CongestionSettings,
    target: u64,
    cwnd: f64,
    /// The last decrease; none in the round trip behind it.
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

/// Algorithm 1: the local window by the issue delay, a server's by the rest.
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

/// The same control without the local signal: a server's window aims at the sum of both targets, and takes
/// every failure for its own. The local window never binds.
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

/// The initial window, for ever.
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

/// No window and no pace.
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

/// The one of these that [`CongestionSettings::kind`] names.
#[derive(Copy, Clone, Debug)]
pub enum Chosen {
    /// [`ControlKind::Delays`].
    Delays(Delays),
    /// [`ControlKind::TotalDelay`].
    TotalDelay(TotalDelay),
    /// [`ControlKind::Fixed`].
    Fixed(Fixed),
    /// [`ControlKind::None`].
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
