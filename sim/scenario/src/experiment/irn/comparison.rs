//! The comparisons of the figures.

use super::{Contender, Metrics, Sign};
use crate::scenario::ControlName;

/// A metric of the paper.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Mean slowdown of the flows.
    Slowdown,
    /// Mean completion time.
    Fct,
    /// 99th percentile of the completion times.
    P99,
}

impl Metric {
    /// List of all metrics.
    pub const ALL: [Metric; 3] = [Metric::Slowdown, Metric::Fct, Metric::P99];

    /// Returns the name in tables, plots and the list of signs.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Slowdown => "mean slowdown",
            Metric::Fct => "mean fct",
            Metric::P99 => "p99 fct",
        }
    }

    /// Returns the value of this metric.
    pub fn of(self, metrics: &Metrics) -> f64 {
        match self {
            Metric::Slowdown => metrics.slowdown,
            Metric::Fct => metrics.fct,
            Metric::P99 => metrics.p99,
        }
    }
}

/// A ratio that a figure shows: the metrics of one contender divided by those of another.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Number of the figure in the paper.
    pub figure: u32,
    /// Contender in the numerator and its control. Without a control, the one of the row.
    pub who: (Contender, Option<ControlName>),
    /// Contender in the denominator and its control. Without a control, the one of the row.
    pub to: (Contender, Option<ControlName>),
    /// Congestion controls, each of which gives a row.
    pub controls: &'static [ControlName],
    /// Metrics of each row.
    pub metrics: &'static [Metric],
    /// Side of 1 on which the paper's ratio is, or `None` if the row is only printed and not judged.
    pub paper: Option<Sign>,
    /// Smallest and largest ratio in the paper, if recalled.
    pub recalled: Option<(f64, f64)>,
}

impl Comparison {
    /// Returns both sides of the comparison in the row of this control.
    pub fn sides(&self, control: ControlName) -> [(Contender, ControlName); 2] {
        [self.who, self.to].map(|(contender, own)| (contender, own.unwrap_or(control)))
    }
}

const NONE: &[ControlName] = &[ControlName::None];
const CONTROLLED: &[ControlName] = &[ControlName::Timely, ControlName::TimelyPatched, ControlName::Dcqcn];
const ALL: &[ControlName] =
    &[ControlName::None, ControlName::Timely, ControlName::TimelyPatched, ControlName::Dcqcn];
const EVERY: &[Metric] = &Metric::ALL;
const FCT: &[Metric] = &[Metric::Fct];

const fn row(
    figure: u32,
    [subject, reference]: [Contender; 2],
    controls: &'static [ControlName],
    metrics: &'static [Metric],
    paper: Option<Sign>,
    recalled: Option<(f64, f64)>,
) -> Comparison {
    Comparison { figure, who: (subject, None), to: (reference, None), controls, metrics, paper, recalled }
}

/// The comparisons of Figures 1 to 7, 10 and 12. The ratios are recalled from the paper, except for Figures 1
/// and 4: the paper states that IRN's metrics are 6 to 83 % below those of RoCE with PFC.
pub const COMPARISONS: [Comparison; 12] = {
    use Contender::{GoBackN, Irn, IrnPfc, Roce, RocePfc, WithoutCap, WithoutSack, WorstCase};
    use Sign::{Above, Below};
    [
        row(1, [Irn, RocePfc], NONE, EVERY, Some(Below), Some((1.0 / 3.7, 1.0 / 2.8))),
        row(2, [IrnPfc, Irn], NONE, EVERY, Some(Above), Some((1.5, 2.0))),
        row(3, [Roce, RocePfc], NONE, EVERY, Some(Above), Some((1.5, 3.0))),
        row(4, [Irn, RocePfc], CONTROLLED, EVERY, Some(Below), Some((1.0 / 2.2, 1.0 / 1.5))),
        row(5, [IrnPfc, Irn], CONTROLLED, EVERY, None, Some((0.99, 1.034))),
        row(6, [Roce, RocePfc], CONTROLLED, EVERY, Some(Above), Some((1.35, 3.5))),
        row(7, [GoBackN, Irn], ALL, FCT, Some(Above), None),
        row(7, [WithoutCap, Irn], ALL, FCT, Some(Above), None),
        row(7, [WithoutSack, Irn], ALL, FCT, Some(Above), None),
        Comparison {
            who: (Irn, Some(ControlName::None)),
            to: (Roce, Some(ControlName::Dcqcn)),
            ..row(10, [Irn, Roce], NONE, EVERY, Some(Below), None)
        },
        row(12, [WorstCase, Contender::Ideal], NONE, EVERY, Some(Above), Some((1.04, 1.07))),
        row(12, [WorstCase, RocePfc], ALL, EVERY, Some(Below), Some((0.37, 0.65))),
    ]
};
