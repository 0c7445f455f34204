//! DCQCN (Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015). The receiver of
//! marked packets sends CNPs. The sender cuts its rate on each CNP and then raises it in three stages.
//!
//! Names are the paper's: `R_C` is the current rate, `R_T` the target rate, and α the estimated degree of
//! congestion. §3.1 of the paper describes the algorithm; §5 and figure 14 give the default parameters.
//!
//! The ns-3 models that later papers use follow a NIC vendor's variant instead ([`Form::Ns3`]). They are in
//! `rdma-hw.cc` of the simulators of HPCC (Li et al., SIGCOMM 2019) and ConWeave (Song et al., SIGCOMM
//! 2023).

use crate::Instant;

/// The variant of the reaction point.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Form {
    /// The paper's variant. A CNP cuts the rate and updates α at once. α decays after each interval K
    /// without a CNP. The step of hyper increase grows each time.
    #[default]
    Paper,
    /// The variant of the ns-3 models. A CNP is only recorded. α is updated at the end of each interval K,
    /// counted from the first CNP. The rate is cut at the end of each decrease interval in which a CNP
    /// arrived. All steps of hyper increase are equal, and α keeps its value when the flow returns to line
    /// rate.
    Ns3,
}

/// The parameters, under the names of the paper.
#[derive(Copy, Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Settings {
    /// Variant of the reaction point.
    pub form: Form,
    /// N: the minimum time between two CNPs of one flow, in nanoseconds. 0 sends a CNP for each marked
    /// packet.
    pub n_ns: u64,
    /// 1/g: the inverse of the weight that one notification has in α.
    pub g_inverse: u32,
    /// K, in nanoseconds: α decays after this time without a CNP. In the ns-3 variant, the interval between
    /// updates of α.
    pub k_ns: u64,
    /// T: period of the rate-increase timer, in nanoseconds.
    pub t_ns: u64,
    /// B: bytes per step of the byte counter. 0 disables the byte counter, so that only the timer counts.
    pub b_bytes: u64,
    /// F: number of fast-recovery steps.
    pub f: u32,
    /// `R_AI`: rate added by one step of additive increase, in bits per second.
    pub r_ai: u64,
    /// `R_HAI`: rate increment of hyper increase, in bits per second.
    pub r_hai: u64,
    /// Minimum time between two cuts of the rate, in nanoseconds. 0: each notification cuts the rate.
    pub decrease_ns: u64,
    /// If true, each cut sets the target rate to the rate before the cut, as in the paper. If false, a
    /// second cut without an increase since the first leaves the target rate unchanged.
    pub clamp_target: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            form: Form::Paper,
            n_ns: 50_000,
            g_inverse: 256,
            k_ns: 55_000,
            t_ns: 55_000,
            b_bytes: 10_000_000,
            f: 5,
            r_ai: 40_000_000,
            r_hai: 400_000_000,
            decrease_ns: 0,
            clamp_target: true,
        }
    }
}

impl Settings {
    /// The parameters of the ns-3 models, as in ConWeave's `config.txt`, whose names the comments below
    /// quote. HPCC's file differs in `RP_TIMER` (900) and `RATE_AI` (50Mb/s). The minimum rate is in
    /// [`Settings::ns3`](super::Settings::ns3).
    #[cfg(feature = "experiments")]
    pub fn ns3() -> Settings {
        Settings {
            form: Form::Ns3,
            // In the models each ACK echoes the mark; here a CNP answers each marked packet.
            n_ns: 0,
            // EWMA_GAIN 0.00390625
            g_inverse: 256,
            // ALPHA_RESUME_INTERVAL 1
            k_ns: 1_000,
            // RP_TIMER 300
            t_ns: 300_000,
            // The models have no byte counter.
            b_bytes: 0,
            // FAST_RECOVERY_TIMES 1
            f: 1,
            // RATE_AI 40.0Mb/s
            r_ai: 40_000_000,
            // RATE_HAI 100.0Mb/s
            r_hai: 100_000_000,
            // RATE_DECREASE_INTERVAL 4
            decrease_ns: 4_000,
            // CLAMP_TARGET_RATE 0
            clamp_target: false,
        }
    }
}

/// The notification point, which runs at the receiver and decides when to send a CNP.
#[derive(Copy, Clone, Debug, Default)]
pub struct NotificationPoint {
    last: Option<Instant>,
}

impl NotificationPoint {
    /// Processes a marked packet at `now`. Returns true if a CNP must be sent.
    pub fn marked(&mut self, now: Instant, settings: &Settings) -> bool {
        let due = self.last.is_none_or(|last| now >= last.after(settings.n_ns));
        if due {
            self.last = Some(now);
        }
        due
    }
}

/// The reaction point, which runs at the sender and computes the rate of one flow from the CNPs.
#[derive(Clone, Debug)]
pub struct ReactionPoint {
    settings: Settings,
    line: f64,
    least: f64,
    /// `R_C` and `R_T` (`target`), in bits per second.
    current: f64,
    target: f64,
    alpha: f64,
    /// Steps of the timer and of the byte counter since the last cut.
    timer_steps: u32,
    byte_steps: u32,
    bytes: u64,
    /// Times of the next rate increase and of the next decay of α. Both are `NEVER` while the flow sends at
    /// line rate. The ns-3 variant leaves `alpha_at` at `NEVER` and computes α when it is needed.
    timer_at: Instant,
    alpha_at: Instant,
    /// Time of a deferred cut (ns-3 variant), and the earliest time of the next cut (paper's variant).
    cut_at: Instant,
    no_cut_before: Instant,
    /// ns-3 variant only: time of the first CNP, time up to which α is current, and true if a CNP has
    /// arrived since.
    first: Option<Instant>,
    alpha_until: Instant,
    noted: bool,
}

impl ReactionPoint {
    /// Returns the state of a new flow, which sends at line rate. Its rate is never below `min_rate`; both
    /// are in bits per second.
    pub fn new(settings: &Settings, line_rate: u64, min_rate: u64) -> ReactionPoint {
        let line = line_rate as f64;
        ReactionPoint {
            settings: *settings,
            line,
            least: min_rate as f64,
            current: line,
            target: line,
            alpha: 1.0,
            timer_steps: 0,
            byte_steps: 0,
            bytes: 0,
            timer_at: Instant::NEVER,
            alpha_at: Instant::NEVER,
            cut_at: Instant::NEVER,
            no_cut_before: Instant(0),
            first: None,
            alpha_until: Instant(0),
            noted: false,
        }
    }

    /// Returns `R_C` in bits per second.
    pub fn rate(&self) -> u64 {
        self.current as u64
    }

    fn g(&self) -> f64 {
        1.0 / f64::from(self.settings.g_inverse.max(1))
    }

    /// Processes a CNP.
    pub fn notified(&mut self, now: Instant) {
        if self.settings.form == Form::Ns3 {
            return self.note(now);
        }
        if now >= self.no_cut_before {
            self.no_cut_before = now.after(self.settings.decrease_ns);
            self.cut(now);
        }
        self.alpha = (1.0 - self.g()) * self.alpha + self.g();
        self.alpha_at = now.after(self.settings.k_ns);
    }

    /// Cuts the rate (equation 1 of the paper) and restarts recovery.
    fn cut(&mut self, now: Instant) {
        if self.settings.clamp_target || self.timer_steps > 0 {
            self.target = self.current;
        }
        self.current = (self.current * (1.0 - self.alpha / 2.0)).max(self.least);
        (self.timer_steps, self.byte_steps, self.bytes) = (0, 0, 0);
        self.timer_at = now.after(self.settings.t_ns);
    }

    /// Processes a CNP in the ns-3 variant. The first CNP finds α at its initial value of 1 and starts the
    /// intervals. Later ones take effect at the end of an interval.
    fn note(&mut self, now: Instant) {
        let Some(first) = self.first else {
            (self.first, self.alpha_until) = (Some(now), now);
            self.cut_at = now.after(self.settings.decrease_ns);
            return;
        };
        self.update_alpha(now);
        self.noted = true;
        if self.cut_at == Instant::NEVER {
            let interval = self.settings.decrease_ns.max(1);
            let ended = now.since(first) / interval;
            self.cut_at = first.after((ended + 1) * interval);
        }
    }

    /// Computes α at `now` from the intervals that ended since its last update (ns-3 variant).
    fn update_alpha(&mut self, now: Instant) {
        let k_ns = self.settings.k_ns.max(1);
        let ended = now.since(self.alpha_until) / k_ns;
        if ended == 0 {
            return;
        }
        let g = self.g();
        let decay = i32::try_from(ended).unwrap_or(i32::MAX);
        // Several CNPs in one interval count once.
        let noted = if std::mem::take(&mut self.noted) { g * (1.0 - g).powi(decay - 1) } else { 0.0 };
        self.alpha = self.alpha * (1.0 - g).powi(decay) + noted;
        self.alpha_until = self.alpha_until.after(ended * k_ns);
    }

    /// Records sent bytes; each B of them are one step of the byte counter.
    pub fn sent(&mut self, bytes: u32) {
        if self.timer_at == Instant::NEVER || self.settings.b_bytes == 0 {
            return;
        }
        self.bytes += u64::from(bytes);
        while self.bytes >= self.settings.b_bytes {
            self.bytes -= self.settings.b_bytes;
            self.byte_steps += 1;
            self.increase();
        }
    }

    /// Returns the time of the earliest timer.
    pub fn deadline(&self) -> Instant {
        self.timer_at.min(self.alpha_at).min(self.cut_at)
    }

    /// Runs the timers that are due at `now`.
    pub fn expire(&mut self, now: Instant) {
        if now >= self.alpha_at {
            self.alpha *= 1.0 - self.g();
            self.alpha_at = now.after(self.settings.k_ns);
        }
        if now >= self.cut_at {
            self.cut_at = Instant::NEVER;
            self.update_alpha(now);
            self.cut(now);
        }
        if now >= self.timer_at {
            self.timer_at = now.after(self.settings.t_ns);
            self.timer_steps += 1;
            self.increase();
        }
    }

    /// Takes one step of either counter (figure 7 of the paper). Every step halves the distance to the
    /// target rate. After fast recovery, additive and hyper increase also raise the target rate.
    fn increase(&mut self) {
        let timer = self.timer_steps;
        let f = self.settings.f;
        let byte = if self.settings.b_bytes == 0 { timer } else { self.byte_steps };
        // The ns-3 models test the number of steps before this one.
        let is_ns3 = self.settings.form == Form::Ns3;
        let before = u32::from(is_ns3);
        let steps = timer.min(byte).saturating_sub(before);
        if steps > f {
            let factor = if is_ns3 { 1 } else { steps - f };
            self.target += f64::from(factor) * self.settings.r_hai as f64;
        } else if timer.max(byte).saturating_sub(before) >= f {
            self.target += self.settings.r_ai as f64;
        }
        self.target = self.target.min(self.line);
        self.current = (self.current + self.target) / 2.0;
        if self.line - self.current < self.settings.r_ai as f64 / 2.0 {
            self.recover();
        }
    }

    /// Ends the recovery at line rate. A later CNP then starts from α = 1 (paper's variant) and restarts the
    /// timers.
    fn recover(&mut self) {
        (self.current, self.target) = (self.line, self.line);
        if self.settings.form == Form::Paper {
            self.alpha = 1.0;
        }
        (self.timer_at, self.alpha_at) = (Instant::NEVER, Instant::NEVER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(settings: &super::super::Settings) -> ReactionPoint {
        ReactionPoint::new(&settings.dcqcn, settings.line_rate, settings.min_rate)
    }

    const LINE: f64 = 40e9;

    fn point() -> ReactionPoint {
        from(&super::super::Settings::default())
    }

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() < 1.0
    }

    #[test]
    fn a_notification_is_due_at_once_and_then_every_50_us() {
        let mut point = NotificationPoint::default();
        let settings = Settings::default();
        let due: Vec<bool> =
            [0, 1, 49_999, 50_000, 50_001, 200_000].map(|time| point.marked(Instant(time), &settings)).into();
        assert_eq!(due, [true, false, false, true, false, true]);
    }

    #[test]
    fn the_first_notification_halves_the_rate_and_later_ones_cut_by_what_alpha_has_become() {
        let mut point = point();
        point.notified(Instant(0));
        assert!(close(point.current, LINE / 2.0) && close(point.target, LINE));
        // α stays 1 while CNPs keep coming, and decays by 1/256 in each 55 µs without one.
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
        let start = LINE / 4.0;
        let target = LINE / 2.0;
        for step in 1..=4u32 {
            point.expire(Instant(55_000 * u64::from(step)));
            assert!(close(point.target, target));
            assert!(close(point.current, target - (target - start) / f64::from(1 << step)));
        }
        point.expire(Instant(55_000 * 5));
        assert!(close(point.target, target + 40e6), "additive increase starts with the fifth step");
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

    fn ns3() -> ReactionPoint {
        from(&super::super::Settings::ns3(LINE as u64))
    }

    /// Runs all timers that are due before `end`.
    fn run(point: &mut ReactionPoint, end: u64) {
        while point.deadline() < Instant(end) {
            point.expire(point.deadline());
        }
    }

    #[test]
    fn ns3_every_marked_packet_is_notified() {
        let mut point = NotificationPoint::default();
        let settings = Settings::ns3();
        assert!([0, 0, 1, 2].iter().all(|time| point.marked(Instant(*time), &settings)));
    }

    #[test]
    fn ns3_the_rate_is_cut_at_the_end_of_an_interval_once_for_all_notifications_in_it() {
        let mut point = ns3();
        (0..100).for_each(|index| point.notified(Instant(10 + 30 * index)));
        assert!(close(point.current, LINE), "the rate is not cut before the interval has ended");
        assert_eq!(point.deadline(), Instant(10 + 4_000));
        run(&mut point, 5_000);
        // The first CNP set α to 1, the next three intervals had CNPs, and the fourth had none.
        let alpha = 255.0 / 256.0;
        assert!((point.alpha - alpha).abs() < 1e-12, "{}", point.alpha);
        assert!(close(point.current, LINE * (1.0 - alpha / 2.0)) && close(point.target, LINE));
        // The next interval ends with a cut only if a CNP arrived in it.
        run(&mut point, 10_000);
        assert!(close(point.current, LINE * (1.0 - alpha / 2.0)));
        point.notified(Instant(10_000));
        assert_eq!(point.deadline(), Instant(12_010));
        run(&mut point, 12_011);
        let alpha = alpha * (255.0f64 / 256.0).powi(5);
        let alpha = (alpha * 255.0 / 256.0 + 1.0 / 256.0) * 255.0 / 256.0 * 255.0 / 256.0;
        assert!((point.alpha - alpha).abs() < 1e-12, "{} {alpha}", point.alpha);
        // No increase happened between the two cuts, so the target rate is unchanged.
        assert!(close(point.target, LINE), "{}", point.target);
    }

    #[test]
    fn ns3_one_step_of_recovery_then_one_of_additive_and_then_hyper_increase_by_time_alone() {
        let mut point = ns3();
        (point.current, point.target) = (2e9, 2e9);
        point.notified(Instant(0));
        run(&mut point, 4_001);
        let start = point.current;
        let target = 2e9;
        point.sent(u32::MAX);
        run(&mut point, 304_001);
        assert!(close(point.target, target) && close(point.current, (start + target) / 2.0));
        run(&mut point, 604_001);
        assert!(close(point.target, target + 40e6));
        run(&mut point, 904_001);
        assert!(close(point.target, target + 140e6));
        run(&mut point, 1_204_001);
        assert!(close(point.target, target + 240e6), "all steps are equal");
    }

    #[test]
    fn a_cut_that_is_put_off_is_none_in_the_papers_form() {
        let settings = super::super::Settings::default();
        let dcqcn = Settings { decrease_ns: 4_000, ..settings.dcqcn };
        let mut point = from(&super::super::Settings { dcqcn, ..settings });
        [0, 1, 3_999].iter().for_each(|time| point.notified(Instant(*time)));
        assert!(close(point.current, LINE / 2.0));
        point.notified(Instant(4_000));
        assert!(close(point.current, LINE / 4.0));
    }

    #[test]
    fn however_many_notifications_come_the_least_rate_stays() {
        let mut point = point();
        (0..1000).for_each(|time| point.notified(Instant(time)));
        assert_eq!(point.rate(), 10_000_000);
    }
}
