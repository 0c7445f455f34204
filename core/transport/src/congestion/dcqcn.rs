//! DCQCN (Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015): the receiver of
//! marked packets sends CNPs, and their receiver cuts its rate and wins it back in three stages.
//!
//! Names are the paper's: `R_C` is the current rate, `R_T` the target, α the estimate of how congested the
//! path is. §3.1 has the algorithm, §5 and figure 14 the values that the defaults take.

use crate::Instant;

/// The parameters, by the names of the paper.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// N: nanoseconds between two CNPs of one flow, at least.
    pub n_ns: u64,
    /// 1/g: by so much smaller is the weight of one notification in α.
    pub g_inverse: u32,
    /// K: nanoseconds without a CNP after which α decays.
    pub k_ns: u64,
    /// T: nanoseconds of a step of the rate timer.
    pub t_ns: u64,
    /// B: bytes of a step of the byte counter.
    pub b_bytes: u64,
    /// F: steps of fast recovery.
    pub f: u32,
    /// `R_AI`: bits per second of a step of additive increase.
    pub r_ai: u64,
    /// `R_HAI`: bits per second by which a step of hyper increase grows.
    pub r_hai: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            n_ns: 50_000,
            g_inverse: 256,
            k_ns: 55_000,
            t_ns: 55_000,
            b_bytes: 10_000_000,
            f: 5,
            r_ai: 40_000_000,
            r_hai: 400_000_000,
        }
    }
}

/// The notification point: it decides when a CNP is due.
#[derive(Copy, Clone, Debug, Default)]
pub struct NotificationPoint {
    last: Option<Instant>,
}

impl NotificationPoint {
    /// A marked packet has come. Is a CNP due?
    pub fn marked(&mut self, now: Instant, settings: &Settings) -> bool {
        let due = self.last.is_none_or(|last| now >= last.after(settings.n_ns));
        if due {
            self.last = Some(now);
        }
        due
    }
}

/// Where CNPs arrive: the rate of one flow.
#[derive(Clone, Debug)]
pub struct ReactionPoint {
    settings: Settings,
    line: f64,
    least: f64,
    /// `R_C` and `R_T`, bits per second.
    current: f64,
    target: f64,
    alpha: f64,
    /// Steps of the timer and of the byte counter since the last cut.
    timer_steps: u32,
    byte_steps: u32,
    bytes: u64,
    /// Both never while the flow sends at line rate.
    timer_at: Instant,
    alpha_at: Instant,
}

impl ReactionPoint {
    /// A flow begins at line rate.
    pub fn new(settings: &super::Settings) -> ReactionPoint {
        let line = settings.line_rate as f64;
        ReactionPoint {
            settings: settings.dcqcn,
            line,
            least: settings.min_rate as f64,
            current: line,
            target: line,
            alpha: 1.0,
            timer_steps: 0,
            byte_steps: 0,
            bytes: 0,
            timer_at: Instant::NEVER,
            alpha_at: Instant::NEVER,
        }
    }

    /// `R_C`, bits per second.
    pub fn rate(&self) -> u64 {
        self.current as u64
    }

    fn g(&self) -> f64 {
        1.0 / f64::from(self.settings.g_inverse.max(1))
    }

    /// A CNP has come: cut the rate (paper, equation 1) and begin again with recovery.
    pub fn notified(&mut self, now: Instant) {
        self.target = self.current;
        self.current = (self.current * (1.0 - self.alpha / 2.0)).max(self.least);
        self.alpha = (1.0 - self.g()) * self.alpha + self.g();
        (self.timer_steps, self.byte_steps, self.bytes) = (0, 0, 0);
        self.timer_at = now.after(self.settings.t_ns);
        self.alpha_at = now.after(self.settings.k_ns);
    }

    /// Bytes have left: every B of them are a step.
    pub fn sent(&mut self, bytes: u32) {
        if self.timer_at == Instant::NEVER {
            return;
        }
        self.bytes += u64::from(bytes);
        while self.bytes >= self.settings.b_bytes.max(1) {
            self.bytes -= self.settings.b_bytes.max(1);
            self.byte_steps += 1;
            self.increase();
        }
    }

    /// The earlier of both timers.
    pub fn deadline(&self) -> Instant {
        self.timer_at.min(self.alpha_at)
    }

    /// Runs the timers that are due at `now`.
    pub fn expire(&mut self, now: Instant) {
        if now >= self.alpha_at {
            self.alpha *= 1.0 - self.g();
            self.alpha_at = now.after(self.settings.k_ns);
        }
        if now >= self.timer_at {
            self.timer_at = now.after(self.settings.t_ns);
            self.timer_steps += 1;
            self.increase();
        }
    }

    /// A step of either counter (paper, figure 7): fast recovery halves the way to the target; then the
    /// target moves on.
    fn increase(&mut self) {
        let (timer, byte, f) = (self.timer_steps, self.byte_steps, self.settings.f);
        if timer.min(byte) > f {
            self.target += f64::from(timer.min(byte) - f) * self.settings.r_hai as f64;
        } else if timer.max(byte) >= f {
            self.target += self.settings.r_ai as f64;
        }
        self.target = self.target.min(self.line);
        self.current = (self.current + self.target) / 2.0;
        if self.line - self.current < self.settings.r_ai as f64 / 2.0 {
            self.recover();
        }
    }

    /// Back at line rate: there is nothing left to win, and the next congestion is another one.
    fn recover(&mut self) {
        (self.current, self.target, self.alpha) = (self.line, self.line, 1.0);
        (self.timer_at, self.alpha_at) = (Instant::NEVER, Instant::NEVER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: f64 = 40e9;

    fn point() -> ReactionPoint {
        ReactionPoint::new(&super::super::Settings::default())
    }

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() < 1.0
    }

    #[test]
    fn a_notification_is_due_at_once_and_then_every_50_us() {
        let (mut point, settings) = (NotificationPoint::default(), Settings::default());
        let due: Vec<bool> =
            [0, 1, 49_999, 50_000, 50_001, 200_000].map(|at| point.marked(Instant(at), &settings)).into();
        assert_eq!(due, [true, false, false, true, false, true]);
    }

    #[test]
    fn the_first_notification_halves_the_rate_and_later_ones_cut_by_what_alpha_has_become() {
        let mut point = point();
        point.notified(Instant(0));
        assert!(close(point.current, LINE / 2.0) && close(point.target, LINE));
        // α stays 1 while notifications keep coming, and decays by 1/256 in each 55 µs without one.
        point.expire(Instant(55_000));
        assert!((point.alpha - 255.0 / 256.0).abs() < 1e-12);
        let before = point.current;
        point.notified(Instant(60_000));
        assert!(close(point.target, before));
        assert!(close(point.current, before * (1.0 - 255.0 / 512.0)));
        assert!((point.alpha - (255.0 / 256.0 * 255.0 / 256.0 + 1.0 / 256.0)).abs() < 1e-12);
    }

    #[test]
    fn five_steps_of_fast_recovery_halve_the_way_and_then_the_target_grows_by_r_ai() {
        let mut point = point();
        (point.current, point.target) = (LINE / 2.0, LINE / 2.0);
        point.notified(Instant(0));
        let (start, target) = (LINE / 4.0, LINE / 2.0);
        for step in 1..=4u32 {
            point.expire(Instant(55_000 * u64::from(step)));
            assert!(close(point.target, target));
            assert!(close(point.current, target - (target - start) / f64::from(1 << step)));
        }
        point.expire(Instant(55_000 * 5));
        assert!(close(point.target, target + 40e6), "additive increase begins with the fifth step");
    }

    #[test]
    fn hyper_increase_needs_both_counters_beyond_f() {
        let mut point = point();
        (point.current, point.target) = (1e9, 1e9);
        point.notified(Instant(0));
        for step in 1..=6 {
            point.expire(Instant(55_000 * step));
        }
        let before = point.target;
        for _ in 0..5 {
            point.sent(10_000_000);
        }
        assert!(close(point.target, before + 5.0 * 40e6), "the byte counter has not passed F");
        let before = point.target;
        point.sent(9_999_999);
        assert!(close(point.target, before));
        point.sent(1);
        assert!(close(point.target, before + 400e6));
    }

    #[test]
    fn back_at_line_rate_the_timers_rest_and_the_rate_never_exceeds_it() {
        let mut point = point();
        assert_eq!(point.deadline(), Instant::NEVER);
        point.notified(Instant(0));
        for _ in 0..10_000 {
            if point.deadline() == Instant::NEVER {
                break;
            }
            point.expire(point.deadline());
            assert!(point.rate() <= LINE as u64);
        }
        assert_eq!((point.deadline(), point.rate()), (Instant::NEVER, LINE as u64));
    }

    #[test]
    fn however_many_notifications_come_the_least_rate_stays() {
        let mut point = point();
        (0..1000).for_each(|at| point.notified(Instant(at)));
        assert_eq!(point.rate(), 10_000_000);
    }
}
