//! Compares the completion times of both simulators with the allowed bounds.

use anyhow::{Result, ensure};

use super::case::{Key, Kind, Reference};
use super::measure::Measured;
use crate::summary::quantile;

/// Allowed relative differences: of single flows, of the last flow, of the mean over all flows, and of
/// slowdowns.
const ALONE: f64 = 0.01;
const LAST: f64 = 0.01;
const MEAN: f64 = 0.05;
const SLOWDOWN: f64 = 0.15;
/// Requirement for permutations: this share of the flows lies within this relative difference.
const NEAR: (f64, f64) = (0.9, 0.15);

/// A flow that finished in both simulators. Times are in picoseconds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    /// Number of the case, counted from 1.
    pub case: usize,
    /// Source and destination host.
    pub hosts: [u32; 2],
    /// Size of the flow in bytes.
    pub size: u64,
    /// Time until the sender received the last acknowledgement, in the other simulator.
    pub theirs: u64,
    pub ours: u64,
    /// Completion time without other traffic.
    pub alone: u64,
}

/// The flows of both simulators in one comparison.
pub(crate) struct Comparison {
    pub name: String,
    kind: Kind,
    pub pairs: Vec<Pair>,
    /// Number of flows in the other simulator.
    flows: usize,
    /// Number of packets lost in Remora's runs.
    pub lost: u64,
}

/// The requirement for a value.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) enum Bound {
    /// Maximum difference from the other simulator's value, relative to that value.
    Within(f64),
    /// Minimum of the value, inclusive.
    AtLeast(f64),
}

/// A row of the results.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    pub comparison: String,
    pub metric: String,
    pub theirs: Option<f64>,
    pub ours: f64,
    pub bound: Bound,
}

impl Verdict {
    /// Returns the difference relative to the other simulator's value, or `None` if there is no such value.
    pub(crate) fn difference(&self) -> Option<f64> {
        self.theirs.map(|theirs| if theirs == self.ours { 0.0 } else { self.ours / theirs - 1.0 })
    }

    /// Returns whether the value meets its bound.
    pub(crate) fn holds(&self) -> bool {
        match self.bound {
            Bound::Within(share) => self.difference().is_some_and(|difference| difference.abs() <= share),
            Bound::AtLeast(least) => self.ours >= least,
        }
    }
}

impl Comparison {
    /// Pairs the flows of both simulators.
    ///
    /// # Errors
    /// Fails if no flow occurs in both.
    pub(crate) fn new(asked: Reference, runs: Vec<Measured>) -> Result<Comparison> {
        let mut pairs = Vec::new();
        for ((number, case), run) in (1..).zip(&asked.cases).zip(&runs) {
            let by_ports = case.theirs.keys().any(|key| matches!(key, Key::Ports(..)));
            for row in &run.rows {
                let flow = &row.flow;
                let Some(theirs) = case.theirs.get(&Key::of(flow, by_ports)) else { continue };
                pairs.push(Pair {
                    case: number,
                    hosts: [flow.src, flow.dst],
                    size: flow.size,
                    theirs: theirs.fct,
                    ours: row.fct,
                    alone: theirs.alone.unwrap_or(row.alone),
                });
            }
        }
        let name = asked.name();
        ensure!(
            !pairs.is_empty(),
            "{name}: no flow of its scenario has a completion time: do the files belong to the same run?"
        );
        let flows = asked.cases.iter().map(|case| case.theirs.len()).sum();
        let lost = runs.iter().map(|run| run.lost).sum();
        Ok(Comparison { name, kind: asked.kind, pairs, flows, lost })
    }

    /// Returns whether the comparison has enough flows for a chart of the distribution.
    pub(crate) fn has_many(&self) -> bool {
        self.kind != Kind::Alone
    }

    /// Returns the rows of results: those of the kind, and whether all flows finished.
    pub(crate) fn verdicts(&self) -> Vec<Verdict> {
        let mut rows = match self.kind {
            Kind::Alone => self.pairs.iter().map(|pair| self.alone(pair)).collect(),
            Kind::Incast => vec![self.both("fct of the last flow, us", LAST, |time| {
                us(self.pairs.iter().map(time).max().unwrap_or(0))
            })],
            Kind::Permutation => {
                let fct =
                    |time: Time| mean(&self.pairs.iter().map(|pair| us(time(pair))).collect::<Vec<_>>());
                vec![self.both("mean fct, us", MEAN, fct), self.near()]
            }
            Kind::Load => {
                let slowdown = |part, time| quantile(&self.slowdowns(time), part).unwrap_or(0.0);
                vec![
                    self.both("mean slowdown", SLOWDOWN, |time| mean(&self.slowdowns(time))),
                    self.both("p50 of the slowdown", SLOWDOWN, |time| slowdown(0.5, time)),
                    self.both("p99 of the slowdown", SLOWDOWN, |time| slowdown(0.99, time)),
                ]
            }
        };
        let flows = self.flows as f64;
        let ended = self.pairs.len() as f64;
        if flows != ended {
            rows.push(self.row("flows that ended", Some(flows), ended, Bound::Within(0.0)));
        }
        rows
    }

    fn row(&self, metric: &str, theirs: Option<f64>, ours: f64, bound: Bound) -> Verdict {
        Verdict { comparison: self.name.clone(), metric: metric.to_owned(), theirs, ours, bound }
    }

    /// Returns a row that compares a number derived from the times of both simulators.
    fn both(&self, metric: &str, bound: f64, value_of: impl Fn(Time) -> f64) -> Verdict {
        self.row(metric, Some(value_of(|pair| pair.theirs)), value_of(|pair| pair.ours), Bound::Within(bound))
    }

    fn alone(&self, pair: &Pair) -> Verdict {
        let [source, destination] = pair.hosts;
        let metric = format!("fct of {source}->{destination}, us");
        self.row(&metric, Some(us(pair.theirs)), us(pair.ours), Bound::Within(ALONE))
    }

    /// Returns a row with the share of flows that have a similar time.
    fn near(&self) -> Verdict {
        let (least, within) = NEAR;
        let near = |pair: &&Pair| (pair.ours as f64 / pair.theirs as f64 - 1.0).abs() <= within;
        let share = self.pairs.iter().filter(near).count() as f64 / self.pairs.len() as f64;
        self.row(&format!("flows within {} %", within * 100.0), None, share, Bound::AtLeast(least))
    }

    fn slowdowns(&self, time: Time) -> Vec<f64> {
        self.pairs.iter().map(|pair| time(pair) as f64 / pair.alone.max(1) as f64).collect()
    }
}

/// A function that returns one of the two times of a flow.
type Time = fn(&Pair) -> u64;

fn us(ps: u64) -> f64 {
    ps as f64 / 1e6
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
