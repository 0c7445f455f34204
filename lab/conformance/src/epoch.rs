//! One queue pair of the test: its two flows and the course of an epoch.
//!
//! An epoch without an error ends when everything posted has succeeded. An epoch with an error ends when
//! both ends are in ERR and everything posted was flushed. The pair is then reconnected.

use super::flow::{Flow, RECEIVE, reconnect_settings};
use super::report::Report;
use super::trouble::Trouble;
use super::{Arm, Options};
use remora_fabric::program::Settings;
use remora_fault::Random;
use remora_transport::rc::irn;

/// Number of turns without a completion after which a last request is posted to a queue pair in ERR, to
/// check that everything was flushed.
const QUIET: u32 = 10;

pub(super) struct Pair {
    number: usize,
    random: Random,
    settings: Settings,
    flows: [Flow; 2],
    /// True after an error in this epoch.
    ending: bool,
    brought_down: bool,
    /// Number of turns without a completion since both ends were moved to ERR.
    quiet: u32,
    over: bool,
    reconnects: u64,
}

impl Pair {
    pub(crate) fn new(arm: &mut impl Arm, random: &mut Random, options: &Options, big: bool) -> Pair {
        let mut random = random.split();
        let settings = Settings {
            send_slots: random.pick(&[16, 32, 128]),
            receives: random.pick(&[2, 8, 32]),
            max_sge: random.pick(&[1, 3, 16, 30]),
            receive_max_sge: random.pick(&[1, 2, 5, 16]),
            max_inline: random.pick(&[0, 64, 300, 960]),
            timeout: options.timeout,
            irn: options.irn.then(|| irn::Settings::default().reach()),
            retry_cnt: 7,
            ..Settings::default()
        };
        let settings = reconnect_settings(&mut random, &settings, true, arm.path_mtu());
        let number = arm.connect(&settings);
        let mut flow = |side| Flow::new(arm, side, number, random.split(), &settings, options, big);
        let flows = [flow(0), flow(1)];
        Pair {
            number,
            random,
            settings,
            flows,
            ending: false,
            brought_down: false,
            quiet: 0,
            over: true,
            reconnects: 0,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    pub(crate) fn describe(&self) -> String {
        format!("[{} | {}]", self.flows[0].describe(), self.flows[1].describe())
    }

    /// Starts an epoch; `trouble` is the planned error of all pairs, if any.
    pub(crate) fn begin(&mut self, arm: &mut impl Arm, options: &Options, trouble: Option<Trouble>) {
        let random = &mut self.random;
        let own = || Trouble::ALL.iter().copied().filter(|trouble| *trouble != Trouble::Cut);
        let trouble = trouble.or_else(|| {
            let choices: Vec<Trouble> = own().collect();
            random.chance(options.trouble).then(|| random.pick(&choices))
        });
        let impatient = trouble == Some(Trouble::NeverReady);
        // Remaining receives would take the message that must use the bad receive.
        let needs_no_receives = matches!(trouble, Some(Trouble::TooLong | Trouble::BadReceive));
        if impatient || needs_no_receives || self.settings.rnr_retry != 7 || random.chance(0.05) {
            self.reconnect(arm, !impatient);
        }
        let random = &mut self.random;
        let culprit = random.below(2) as usize;
        for flow in &mut self.flows {
            let quota = random.between(20, 150) as usize;
            let index = random.below(40) as usize;
            let planned = trouble.filter(|_| flow.side == culprit).map(|trouble| (trouble, index));
            flow.begin(if planned.is_some() { index + 1 + quota / 4 } else { quota }, planned);
            flow.readiness = random.pick(&[1.0, 1.0, 0.5, 0.05]);
            flow.just_in_time = impatient;
            flow.may_be_cut = matches!(trouble, Some(Trouble::Cut | Trouble::BadInvalidation));
        }
        (self.ending, self.brought_down, self.quiet, self.over) = (false, false, 0, false);
    }

    /// Posts, polls and checks some work. Returns true if anything happened.
    pub(crate) fn turn(&mut self, arm: &mut impl Arm, report: &mut Report) -> bool {
        let mut progress = false;
        for side in 0..2 {
            if !self.ending && self.random.chance(0.5) {
                progress |= self.flows[side].post_some(arm, report);
                self.outside_trouble(arm, side);
            }
            if !self.brought_down {
                progress |= self.flows[side].post_receives(arm);
            }
        }
        for side in 0..2 {
            while let Some(wc) = arm.poll(side, self.number) {
                progress = true;
                let disturbed = self.ending || self.flows.iter().any(Flow::is_disturbed);
                if wc.id & RECEIVE != 0 {
                    self.flows[1 - side].received(arm, &wc, disturbed, report);
                } else {
                    self.flows[side].completed(arm, &wc, disturbed, report);
                }
            }
        }
        self.ending |= self.flows.iter().any(Flow::has_failed);
        if self.ending && !self.brought_down {
            // The other end detects the error by its own retries, or is moved to ERR by its program.
            let idle = self.flows.iter().all(Flow::is_idle);
            if idle || self.random.chance(0.01) {
                arm.fail(0, self.number);
                arm.fail(1, self.number);
                self.brought_down = true;
                progress = true;
            }
        }
        self.quiet = if self.brought_down && !progress { self.quiet + 1 } else { 0 };
        if self.quiet == QUIET {
            for flow in &mut self.flows {
                progress |= flow.post_last(arm, report);
            }
        }
        self.over = if self.brought_down {
            // A receive taken from a shared queue is flushed, but its completion is not required.
            let polled = self.quiet > 0 || !arm.shares_receives();
            polled && self.flows.iter().all(Flow::is_flushed)
        } else {
            !self.ending && self.flows.iter().all(Flow::is_done)
        };
        progress
    }

    /// Triggers a planned error that is not caused by a work request.
    fn outside_trouble(&mut self, arm: &mut impl Arm, side: usize) {
        match self.flows[side].reached() {
            Some(Trouble::Fail) => {
                arm.fail(side, self.number);
                self.ending = true;
            }
            Some(Trouble::Cut) => {
                arm.cut(true);
            }
            _ => {}
        }
    }

    /// Ends an epoch: checks memory, and reconnects after an error.
    pub(crate) fn end(&mut self, arm: &mut impl Arm, report: &mut Report) {
        for flow in &mut self.flows {
            flow.check_target(arm);
            if let Some(trouble) = flow.reached() {
                report.trouble(trouble);
            }
        }
        report.epochs += 1;
        if self.ending {
            self.reconnect(arm, true);
        }
        report.reconnects += std::mem::take(&mut self.reconnects);
    }

    fn reconnect(&mut self, arm: &mut impl Arm, patient: bool) {
        self.settings = reconnect_settings(&mut self.random, &self.settings, patient, arm.path_mtu());
        arm.reconnect(self.number, &self.settings);
        self.flows.iter_mut().for_each(|flow| flow.reset(&self.settings));
        self.reconnects += 1;
    }
}
