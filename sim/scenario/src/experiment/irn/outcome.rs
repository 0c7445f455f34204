//! The results of a run of the evaluation.

use remora_fabric::engine::Picos;
use remora_fabric::network::Finding;
use remora_fabric::simulation::Charging;
use remora_nic::Status;

use crate::path::Paths;
use crate::run::Run;
use crate::scenario::Scenario;

/// A flow that has ended.
#[derive(Copy, Clone, Debug, PartialEq)]
struct Ended {
    id: u64,
    size: u64,
    start: Picos,
    /// Completion time, in picoseconds.
    fct: u64,
    /// Completion time on an idle network with RoCE's headers, in picoseconds; equal for all contenders.
    alone: u64,
}

/// The flows of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    flows: Vec<Ended>,
    /// Number of flows that did not end or failed.
    pub unfinished: usize,
    /// Violated invariants other than pause storms, one per line.
    pub findings: Vec<String>,
    /// Number of pause storms. Under this load they are an effect of PFC and no error of the run.
    pub storms: usize,
    /// Number of packets that arrived at the far end of a link.
    pub hops: u64,
}

/// The metrics of the paper (section 4.1).
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Metrics {
    /// Mean of the slowdown: completion time divided by that on an idle network.
    pub slowdown: f64,
    /// Mean completion time, in seconds.
    pub fct: f64,
    /// 99th percentile of the completion times, in seconds.
    pub p99: f64,
}

/// Simulated time in picoseconds after which a run is abandoned. Go-back-N without PFC and congestion control
/// loses most of its packets, so that a flow of 2 MB takes a second.
const PATIENCE: u64 = 5_000_000 * Picos::MICROSECOND;
/// Simulated time between two calls of `progress`, in picoseconds.
const STEP: u64 = 20 * Picos::MICROSECOND;

/// Runs a scenario to its end. Calls `progress` with the number of flows that have ended and of all flows; if
/// it returns false, the run ends early.
///
/// # Errors
/// Fails if the scenario is invalid or not supported.
pub fn measure(
    scenario: &Scenario,
    mut progress: impl FnMut(usize, usize) -> bool,
) -> Result<Outcome, String> {
    let topology = scenario.topology().map_err(|error| error.to_string())?;
    let paths = Paths::new(&topology)?;
    let mut run = Run::new(scenario)?;
    let mut outcome = Outcome::default();
    while !run.is_over() && run.progress().now.0 < PATIENCE {
        let limit = run.progress().now.after(STEP);
        while let Some(row) = run.advance(limit) {
            if row.status != Status::Success {
                outcome.unfinished += 1;
                continue;
            }
            let src = row.flow.src;
            let dst = row.flow.dst;
            let size = row.flow.size;
            let alone = paths.alone(src, dst, size, scenario.mtu, Charging::Ethernet, 0);
            outcome.flows.push(Ended { id: row.flow.id, size, start: row.start, fct: row.fct, alone });
        }
        let (ended, all) = run.progress().flows;
        if !progress(ended, all) {
            break;
        }
    }
    outcome.unfinished += run.unfinished().count();
    let is_storm = |finding: &Finding| matches!(finding, Finding::PauseStorm { .. });
    let (storms, others): (Vec<Finding>, Vec<Finding>) = run.findings().0.into_iter().partition(is_storm);
    (outcome.storms, outcome.findings) = (storms.len(), others.iter().map(ToString::to_string).collect());
    outcome.hops = run.totals().hops;
    Ok(outcome)
}

impl Outcome {
    /// Returns the metrics of the flows that started at `earliest` or later and have an id of at least `ids`,
    /// or `None` if there are no such flows.
    pub fn metrics(&self, earliest: Picos, ids: u64) -> Option<Metrics> {
        let flows = || self.flows.iter().filter(|flow| flow.start >= earliest && flow.id >= ids);
        let mut times: Vec<f64> = flows().map(|flow| seconds(flow.fct)).collect();
        times.sort_by(f64::total_cmp);
        let count = times.len() as f64;
        let slowdowns = flows().map(|flow| flow.fct as f64 / flow.alone.max(1) as f64);
        (!times.is_empty()).then(|| Metrics {
            slowdown: slowdowns.sum::<f64>() / count,
            fct: times.iter().sum::<f64>() / count,
            p99: percentile(&times, 0.99),
        })
    }

    /// Returns completion times in seconds, at the quantiles `parts`, of the flows of at most `bytes` bytes
    /// that started at `earliest` or later. Returns `None` if there are no such flows.
    pub fn tail<const N: usize>(&self, earliest: Picos, bytes: u64, parts: [f64; N]) -> Option<[f64; N]> {
        let small = self.flows.iter().filter(|flow| flow.start >= earliest && flow.size <= bytes);
        let mut times: Vec<f64> = small.map(|flow| seconds(flow.fct)).collect();
        times.sort_by(f64::total_cmp);
        (!times.is_empty()).then(|| parts.map(|part| percentile(&times, part)))
    }

    /// Returns the time in seconds at which the last flow with an id below `ids` ended: the completion time
    /// of an incast.
    pub fn last_end(&self, ids: u64) -> f64 {
        let ends = self.flows.iter().filter(|flow| flow.id < ids).map(|flow| flow.start.0 + flow.fct);
        seconds(ends.max().unwrap_or(0))
    }
}

fn seconds(picos: u64) -> f64 {
    picos as f64 / 1e12
}

/// Returns a quantile of `sorted`, interpolated between neighbours. `sorted` must not be empty.
fn percentile(sorted: &[f64], part: f64) -> f64 {
    let rank = part * (sorted.len() - 1) as f64;
    let low = sorted[rank.floor() as usize];
    let high = sorted[rank.ceil() as usize];
    low + (high - low) * rank.fract()
}

/// Returns the mean of values, and half the width of its 95 % confidence interval by Student's distribution;
/// 0 for a single value.
pub fn interval(values: &[f64]) -> (f64, f64) {
    let count = values.len();
    let mean = values.iter().sum::<f64>() / count.max(1) as f64;
    if count < 2 {
        return (mean, 0.0);
    }
    let squares = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>();
    let deviation = libm::sqrt(squares / (count - 1) as f64);
    let t = T_95.get(count - 2).copied().unwrap_or(1.96);
    (mean, t * deviation / libm::sqrt(count as f64))
}

/// Two-sided 95 % quantiles of Student's t, by degrees of freedom from 1.
const T_95: [f64; 20] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086,
];
