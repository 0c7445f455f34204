//! The summary of a run: completion times, slowdowns, packet counts and findings.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Result;
use remora_scenario::run::{Row, Run};
use serde_json::{Value, json};

/// Maximum number of findings, and of unfinished flows, that are printed. All unfinished flows are in a
/// file.
const SHOWN: usize = 10;

/// The completed flows and the findings of a run.
#[derive(Default)]
pub(crate) struct Summary {
    slowdowns: Vec<f64>,
    fct_us: Vec<f64>,
    failed: usize,
    findings: Vec<String>,
    more: u64,
    unfinished: usize,
    interrupted: bool,
}

impl Summary {
    /// Adds a completed flow.
    pub(crate) fn add(&mut self, row: &Row) {
        self.slowdowns.push(row.slowdown());
        self.fct_us.push(row.fct as f64 / 1e6);
        self.failed += usize::from(row.status != remora_scenario::run::Status::Success);
    }

    /// Returns the quantile of the slowdowns for `part`, between 0 and 1, or 0 if no flow has finished.
    pub(crate) fn slowdown(&self, part: f64) -> f64 {
        quantile(&self.slowdowns, part).unwrap_or(0.0)
    }

    /// Takes over the findings and unfinished flows at the end of a run. Returns whether all flows finished
    /// and nothing was found.
    pub(crate) fn close(&mut self, run: &mut Run, interrupted: bool) -> bool {
        let (findings, more) = run.findings();
        self.findings = findings.iter().map(ToString::to_string).collect();
        (self.more, self.interrupted) = (more, interrupted);
        self.unfinished = run.unfinished().count();
        if run.is_stalled() && self.unfinished > 0 {
            self.findings.push("no packet has arrived at any host for a second: no flow goes on".into());
        }
        if self.unfinished > 0 && run.lacks_timeout() && run.totals().lost().packets > 0 {
            let says = "packets were lost, and with pauses the transport has no timeout: a flow that lost its last \
                        packets stops for good; `--set transport.rto=320us` gives it one";
            self.findings.push(says.into());
        }
        self.unfinished == 0 && self.failed == 0 && self.findings.is_empty()
    }

    /// Returns the summary as a JSON object.
    pub(crate) fn object(&self, run: &Run) -> Value {
        let totals = run.totals();
        let balance = run.simulation().network().balance();
        json!({
            "time_us": run.progress().now.0 as f64 / 1e6,
            "flows": run.progress().flows.1,
            "flows_done": self.fct_us.len(),
            "flows_failed": self.failed,
            "flows_unfinished": self.unfinished,
            "interrupted": self.interrupted,
            "slowdown_mean": mean(&self.slowdowns),
            "slowdown_p50": quantile(&self.slowdowns, 0.5),
            "slowdown_p99": quantile(&self.slowdowns, 0.99),
            "fct_us_mean": mean(&self.fct_us),
            "fct_us_p50": quantile(&self.fct_us, 0.5),
            "fct_us_p99": quantile(&self.fct_us, 0.99),
            "fct_us_max": quantile(&self.fct_us, 1.0),
            "packets_sent": balance.sent,
            "packets_delivered": balance.delivered,
            "packets_lost": balance.lost,
            "packets_in_flight": balance.in_flight,
            "hops": totals.hops,
            "marked": totals.marked,
            "pauses": totals.pauses,
            "findings": self.findings,
            "more_findings": self.more,
        })
    }

    /// Prints the slowdowns and completion times, unless no flow has finished.
    fn print_times(&self, out: &mut impl std::io::Write) {
        if self.slowdowns.is_empty() {
            return;
        }
        let fct = |part: f64| quantile(&self.fct_us, part).unwrap_or(0.0);
        let _ = writeln!(
            out,
            "slowdown: mean {:.3}, p50 {:.3}, p99 {:.3}; fct: p50 {:.3} us, p99 {:.3} us, last {:.3} us",
            mean(&self.slowdowns).unwrap_or(0.0),
            self.slowdown(0.5),
            self.slowdown(0.99),
            fct(0.5),
            fct(0.99),
            fct(1.0),
        );
    }

    /// Prints the summary as text, or as one line of JSON.
    pub(crate) fn print(&self, run: &Run, json: bool, elapsed: Duration) -> Result<()> {
        // A reader that closes the pipe early is not an error.
        let mut out = std::io::stdout().lock();
        if json {
            let _ = writeln!(out, "{}", json!({ "summary": self.object(run) }));
            return Ok(());
        }
        let totals = run.totals();
        let balance = run.simulation().network().balance();
        let seconds = elapsed.as_secs_f64();
        let _ = writeln!(
            out,
            "{} of {} flows in {:.3} us of simulated time; {} packet-hops in {seconds:.2} s, {:.1} M/s",
            self.fct_us.len(),
            run.progress().flows.1,
            run.progress().now.0 as f64 / 1e6,
            totals.hops,
            totals.hops as f64 / seconds.max(1e-9) / 1e6,
        );
        self.print_times(&mut out);
        let _ = writeln!(
            out,
            "{} packets sent, {} delivered, {} lost, {} in flight, {} marked; {} pauses",
            balance.sent, balance.delivered, balance.lost, balance.in_flight, totals.marked, totals.pauses
        );
        for finding in self.findings.iter().take(SHOWN) {
            let _ = writeln!(out, "found: {finding}");
        }
        let more = self.findings.len().saturating_sub(SHOWN) as u64 + self.more;
        if more > 0 {
            let _ = writeln!(out, "found: {more} more");
        }
        for open in run.unfinished().take(SHOWN) {
            let flow = &open.flow;
            let done = open.done;
            let size = flow.size;
            let state = if open.start.is_some() { "unfinished" } else { "not started" };
            let _ = writeln!(
                out,
                "{state}: flow {} from {} to {}, {done} of {size} bytes",
                flow.id, flow.src, flow.dst
            );
        }
        if self.unfinished > SHOWN {
            let _ = writeln!(out, "unfinished: {} more; --out DIR writes all", self.unfinished - SHOWN);
        }
        Ok(())
    }
}

/// Returns the mean, or `None` if there are no values.
fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Returns the quantile for `part`, between 0 and 1, with linear interpolation. `None` if there are no
/// values.
pub(crate) fn quantile(values: &[f64], part: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let position = part * last as f64;
    let low = sorted[position.floor() as usize];
    let high = sorted[position.ceil() as usize];
    Some(low + (high - low) * position.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the summary had `-0.0` for times that do not exist.
    #[test]
    fn without_flows_there_is_no_mean_and_no_quantile() {
        assert_eq!((mean(&[]), quantile(&[], 0.5)), (None, None));
        assert_eq!((mean(&[1.0, 2.0]), quantile(&[1.0, 2.0], 0.5)), (Some(1.5), Some(1.5)));
    }
}
