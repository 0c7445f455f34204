//! What the figures compare.

use super::{Contender, Metrics, Sign};
use crate::scenario::ControlName;

/// One of the paper's metrics.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Mean slowdown.
    Slowdown,
    /// Mean completion time.
    Fct,
    /// 99th percentile of completion times.
    P99,
}

impl Metric {
    /// Every one.
    pub const ALL: [Metric; 3] = [Metric::Slowdown, Metric::Fct, Metric::P99];

    /// Its name in tables, plots and the list of signs.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Slowdown => "mean slowdown",
            Metric::Fct => "mean fct",
            Metric::P99 => "p99 fct",
        }
    }

    /// Its value.
    pub fn of(self, metrics: &Metrics) -> f64 {
        match self {
            Metric::Slowdown => metrics.slowdown,
            Metric::Fct => metrics.fct,
            Metric::P99 => metrics.p99,
        }
    }
}

/// A figure's ratio of one contender to another.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Number of the figure.
    pub figure: u32,
    /// Who is compared, and its control.
    pub who: (Contender, Option<ControlName>),
    /// To whom, and its control. Without one, as the row's.
    pub to: (Contender, Option<ControlName>),
    /// The controls of its rows.
    pub controls: &'static [ControlName],
    /// The metrics of its rows.
    pub metrics: &'static [Metric],
    /// On which side of 1 the paper's ratio is; `None`: the figure is printed, and not judged.
    pub paper: Option<Sign>,
    /// The paper's ratios where they are recalled: from, to.
    pub recalled: Option<(f64, f64)>,
}

impl Comparison {
    /// Who is compared and to whom, in a row with this control.
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
    [who, to]: [Contender; 2],
    controls: &'static [ControlName],
    metrics: &'static [Metric],
    paper: Option<Sign>,
    recalled: Option<(f64, f64)>,
) -> Comparison {
    Comparison { figure, who: (who, None), to: (to, None), controls, metrics, paper, recalled }
}

/// Every comparison of Figures 1 to 7, 10 and 12. The ratios are recalled, but for the gain of Figures 1 and
/// 4: the paper states that IRN's metrics are 6 to 83 % below RoCE's with PFC.
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
