//! The part of `remora doctor` about a running program: its counters show where 1RMA operations wait.

use std::time::Duration;

use anyhow::Result;
use remora_verbs::doctor::{Finding, Verdict};

use crate::metrics::{Buckets, Samples, duration, histograms, lately, look, quantile};

/// Time between the two readings of the counters.
const APART: Duration = Duration::from_secs(1);

/// Share of the time above which a full window is reported as a limitation.
const OFTEN: f64 = 0.1;

/// Reads the counters of the program at `address` twice and returns findings about them.
pub(crate) fn examine(address: &str) -> Result<Vec<Finding>> {
    let before = look(address)?;
    std::thread::sleep(APART);
    Ok(findings(&before, &look(address)?))
}

/// Returns the sum of a counter over all its labels.
fn sum(samples: &Samples, name: &str) -> f64 {
    let is_named =
        |sample: &str| sample.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('{'));
    // `Iterator::sum` of no floats is -0.0.
    samples.iter().filter(|(sample, _)| is_named(sample)).fold(0.0, |sum, (_, value)| sum + value)
}

/// Two readings of the counters, and the time span that the findings describe.
struct Readings<'a> {
    before: &'a Samples,
    now: &'a Samples,
    span: &'static str,
}

impl Readings<'_> {
    /// Returns the increase of a counter in the time span.
    fn grown(&self, name: &str) -> f64 {
        let earlier = if self.span == LATELY { sum(self.before, name) } else { 0.0 };
        sum(self.now, name) - earlier
    }

    /// Returns the 99th percentile of a histogram over all engines, or `None` if it has no values.
    fn most(&self, name: &str) -> Option<f64> {
        let before = histograms(self.before);
        let now = histograms(self.now);
        let engines = now
            .iter()
            .filter(|(sample, _)| sample.strip_prefix(name).is_some_and(|rest| rest.starts_with('{')));
        let mut all = Buckets::new();
        for (sample, buckets) in engines {
            for (index, (bound, below)) in lately(before.get(sample), buckets).into_iter().enumerate() {
                match all.get_mut(index) {
                    Some((_, sum)) => *sum += below,
                    None => all.push((bound, below)),
                }
            }
        }
        quantile(&all, 0.99)
    }
}

const LATELY: &str = "the last second";
const EVER: &str = "the time since its start";

fn findings(before: &Samples, now: &Samples) -> Vec<Finding> {
    let seconds = "remora_rma_seconds_total";
    if sum(now, seconds) == 0.0 {
        return vec![finding("1RMA of the program", Verdict::Good, "not in use".to_owned(), "")];
    }
    let moved = ["remora_rma_total_delay_seconds_count", "remora_rma_window_full_seconds_total"]
        .iter()
        .any(|name| sum(now, name) > sum(before, name));
    let readings = Readings { before, now, span: if moved { LATELY } else { EVER } };
    vec![window(&readings, seconds), delays(&readings), servers(&readings)]
}

fn finding(subject: &'static str, verdict: Verdict, text: String, mend: &'static str) -> Finding {
    Finding { what: subject, verdict, found: text, mend }
}

fn window(readings: &Readings<'_>, seconds: &str) -> Finding {
    let share = readings.grown("remora_rma_window_full_seconds_total") / readings.grown(seconds).max(1e-9);
    let share = share.min(1.0);
    let text = format!("the window was full {:.0} % of {}", share * 100.0, readings.span);
    if share < OFTEN {
        return finding("1RMA window", Verdict::Good, text, "");
    }
    let mend = "give the program a larger window (Settings::window) or more engines, or let it have fewer operations at once";
    finding("1RMA window", Verdict::Limited, format!("{text}: the congestion is local"), mend)
}

fn delays(readings: &Readings<'_>) -> Finding {
    let most = |name| readings.most(name).map(duration);
    let issue = most("remora_rma_issue_delay_seconds");
    let remote = most("remora_rma_remote_delay_seconds");
    let text = match (issue, remote) {
        (Some(issue), Some(remote)) => {
            format!(
                "99 % of commands waited here for {issue} at most, and 99 % took {remote} at most from there on"
            )
        }
        (Some(issue), None) => format!("99 % of commands waited here for {issue} at most, and none was sent"),
        _ => "no command of its own has ended".to_owned(),
    };
    finding("1RMA delays", Verdict::Good, text, "")
}

fn servers(readings: &Readings<'_>) -> Finding {
    let nacks = readings.grown("remora_rma_nacks_received_total");
    let timeouts = readings.grown("remora_rma_timeouts_total");
    let text = format!("{nacks} NACKs and {timeouts} timeouts in {}", readings.span);
    if nacks + timeouts == 0.0 {
        return finding("1RMA servers", Verdict::Good, text, "");
    }
    let mend = "see that the servers run; give them more engines, or let fewer operations go on at once";
    finding("1RMA servers", Verdict::Limited, format!("{text}: the congestion is remote"), mend)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a reading of counters: `seconds` of run time, of which `full` with a full window, `nacks`
    /// NACKs, and `ended` commands that took at most 2 ms.
    fn reading(seconds: f64, full: f64, nacks: f64, ended: f64) -> Samples {
        let labels = "{engine=\"0\",port=\"udp\"}";
        let bucket = |name: &str, bound: &str| {
            format!("remora_rma_{name}_delay_seconds_bucket{{engine=\"0\",port=\"udp\",le=\"{bound}\"}}")
        };
        let mut samples: Samples = [
            ("remora_rma_seconds_total", seconds),
            ("remora_rma_window_full_seconds_total", full),
            ("remora_rma_nacks_received_total", nacks),
            ("remora_rma_total_delay_seconds_count", ended),
        ]
        .into_iter()
        .map(|(name, value)| (format!("{name}{labels}"), value))
        .collect();
        for (name, bound) in [("issue", "0.000001024"), ("remote", "0.002")] {
            samples.extend([(bucket(name, bound), ended), (bucket(name, "+Inf"), ended)]);
        }
        samples
    }

    fn found(before: &Samples, now: &Samples) -> Vec<String> {
        findings(before, now).into_iter().map(|finding| finding.found).collect()
    }

    #[test]
    fn a_full_window_is_local_congestion() {
        let before = reading(100.0, 3.0, 0.0, 10.0);
        let now = reading(101.0, 3.41, 0.0, 20.0);
        assert_eq!(
            found(&before, &now),
            [
                "the window was full 41 % of the last second: the congestion is local",
                "99 % of commands waited here for 1.0 us at most, and 99 % took 2.0 ms at most from there on",
                "0 NACKs and 0 timeouts in the last second",
            ]
        );
        let verdicts = findings(&before, &now).iter().map(|finding| finding.verdict).collect::<Vec<_>>();
        assert_eq!(verdicts, [Verdict::Limited, Verdict::Good, Verdict::Good]);
    }

    #[test]
    fn nacks_are_remote_congestion_and_a_program_at_rest_is_judged_since_its_start() {
        let before = reading(100.0, 1.0, 5.0, 10.0);
        let now = reading(101.0, 1.0, 5.0, 10.0);
        let words = found(&before, &now);
        assert_eq!(words[0], "the window was full 1 % of the time since its start");
        assert_eq!(words[2], "5 NACKs and 0 timeouts in the time since its start: the congestion is remote");
    }

    #[test]
    fn programs_without_1rma_and_without_commands_are_told() {
        assert_eq!(found(&Samples::new(), &Samples::new()), ["not in use"]);
        let idle = reading(1.0, 0.0, 0.0, 0.0);
        assert_eq!(found(&idle, &idle)[1], "no command of its own has ended");
    }
}
