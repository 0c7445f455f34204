//! What is near enough: both programs' times of the same flows, and the bounds.

use anyhow::{Result, ensure};

use super::case::{Key, Kind, Reference};
use super::measure::Measured;
use crate::summary::quantile;

/// Times of single flows, of the last flow, of all flows on average, and slowdowns.
const ALONE: f64 = 0.01;
const LAST: f64 = 0.01;
const MEAN: f64 = 0.05;
const SLOWDOWN: f64 = 0.15;
/// So many flows of a permutation are so near.
const NEAR: (f64, f64) = (0.9, 0.15);

/// A flow that ended in both programs. Times are in picoseconds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Number of the case, from 1.
    pub case: usize,
    /// Hosts: from, to.
    pub hosts: [u32; 2],
    /// Bytes.
    pub size: u64,
    /// Until its sender had the last acknowledgement, there and here.
    pub theirs: u64,
    pub ours: u64,
    /// The same alone.
    pub alone: u64,
}

/// Runs of both programs.
pub struct Comparison {
    pub name: String,
    kind: Kind,
    pub pairs: Vec<Pair>,
    /// Flows of theirs.
    flows: usize,
    /// Packets lost here.
    pub lost: u64,
}

/// How near a value has to be.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Bound {
    /// To theirs, as a share of it.
    Within(f64),
    /// So much or more.
    AtLeast(f64),
}

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub comparison: String,
    pub metric: String,
    pub theirs: Option<f64>,
    pub ours: f64,
    pub bound: Bound,
}

impl Verdict {
    /// The difference as a share of theirs.
    pub fn difference(&self) -> Option<f64> {
        self.theirs.map(|theirs| if theirs == self.ours { 0.0 } else { self.ours / theirs - 1.0 })
    }

    /// Is it near enough?
    pub fn holds(&self) -> bool {
        match self.bound {
            Bound::Within(share) => self.difference().is_some_and(|difference| difference.abs() <= share),
            Bound::AtLeast(least) => self.ours >= least,
        }
    }
}

impl Comparison {
    /// Of what was asked for, and its runs here.
    ///
    /// # Errors
    /// No flow is in both.
    pub fn new(asked: Reference, runs: Vec<Measured>) -> Result<Comparison> {
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
        ensure!(!pairs.is_empty(), "{name}: no flow of its scenario has a time: are the files of one run?");
        let flows = asked.cases.iter().map(|case| case.theirs.len()).sum();
        let lost = runs.iter().map(|run| run.lost).sum();
        Ok(Comparison { name, kind: asked.kind, pairs, flows, lost })
    }

    /// Is there a distribution to see?
    pub fn has_many(&self) -> bool {
        self.kind != Kind::Alone
    }

    /// The rows: what the kind judges, and that all flows ended.
    pub fn verdicts(&self) -> Vec<Verdict> {
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
        let (flows, ended) = (self.flows as f64, self.pairs.len() as f64);
        if flows != ended {
            rows.push(self.row("flows that ended", Some(flows), ended, Bound::Within(0.0)));
        }
        rows
    }

    fn row(&self, metric: &str, theirs: Option<f64>, ours: f64, bound: Bound) -> Verdict {
        Verdict { comparison: self.name.clone(), metric: metric.to_owned(), theirs, ours, bound }
    }

    /// A number of both programs' times.
    fn both(&self, metric: &str, bound: f64, of: impl Fn(Time) -> f64) -> Verdict {
        self.row(metric, Some(of(|pair| pair.theirs)), of(|pair| pair.ours), Bound::Within(bound))
    }

    fn alone(&self, pair: &Pair) -> Verdict {
        let [from, to] = pair.hosts;
        let metric = format!("fct of {from}->{to}, us");
        self.row(&metric, Some(us(pair.theirs)), us(pair.ours), Bound::Within(ALONE))
    }

    /// How many flows are near.
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

/// One of a flow's two times.
type Time = fn(&Pair) -> u64;

fn us(ps: u64) -> f64 {
    ps as f64 / 1e6
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
