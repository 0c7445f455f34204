//! The rows of the rounds: ABDLOCK compared with its lower bound, and PRISM-RS with ABDLOCK.

use remora_store::block::Design;

use super::system::{Round, Rounds};
use crate::Row;

/// Largest ratio of PRISM-RS's latency, and least ratio of its rate, to ABDLOCK's, as the paper's results
/// suggest.
const LATENCY: f64 = 0.7;
const RATE: f64 = 1.2;
/// Largest ratio of PRISM-RS's latency with skewed keys to its latency with uniform keys.
const SKEWED: f64 = 1.3;
/// Largest ratio of ABDLOCK's latency to its round trips times a bare READ of all replicas. The bound keeps a
/// slow baseline from making PRISM-RS look good.
const LIMIT: f64 = 1.15;

/// Name and unit of a figure, and the function that takes it from a round.
type Kind = (&'static str, &'static str, fn(&Round) -> f64);

const P50: Kind = ("latency_p50", "ns", |round| round.p50);
const P99: Kind = ("latency_p99", "ns", |round| round.p99);
const MEAN: Kind = ("latency_mean", "ns", |round| round.mean);
const RATES: Kind = ("rate", "1/s", |round| round.rate);
const TRIPS: Kind = ("round_trips", "per operation", |round| round.round_trips);

fn of(rounds: &[Rounds], wanted: Design, figure: fn(&Round) -> f64) -> Vec<f64> {
    let matching = rounds.iter().filter(|(design, _)| *design == wanted);
    matching.flat_map(|(_, rounds)| rounds.iter().map(figure)).collect()
}

/// Returns ABDLOCK's row of a figure, and PRISM-RS's compared to it.
fn pair(rounds: &[Rounds], (metric, unit, figure): Kind, case: &impl Fn(Design) -> String) -> [Row; 2] {
    let [prism, locks] = [Design::PrismRs, Design::AbdLock].map(|design| of(rounds, design, figure));
    [
        Row::new("block", case(Design::AbdLock), metric, unit, &locks),
        Row::new("block", case(Design::PrismRs), metric, unit, &prism).against("abdlock", &locks),
    ]
}

/// Returns the rows of one client.
pub(crate) fn beside(rounds: &[Rounds], case: impl Fn(Design) -> String) -> Vec<Row> {
    let mut rows = Vec::new();
    let floor = of(rounds, Design::AbdLock, |round| round.bare * round.round_trips);
    for kind in [P50, MEAN, P99, RATES, TRIPS] {
        let [locks, prism] = pair(rounds, kind, &case);
        rows.push(match kind.0 {
            "latency_p50" => locks.against("round trips x bare READ of all replicas", &floor).within(LIMIT),
            _ => locks,
        });
        rows.push(match kind.0 {
            // The bound applies to the mean. Reads take one round trip and writes two, so the median is the
            // value of one of them.
            "latency_mean" => prism.within(LATENCY),
            "rate" => prism.at_least(RATE),
            _ => prism,
        });
    }
    rows
}

/// Returns the rows of one point of a curve, measured with a fixed number of clients.
pub(crate) fn point(rounds: &[Rounds], case: impl Fn(Design) -> String) -> Vec<Row> {
    [RATES, MEAN].into_iter().flat_map(|kind| pair(rounds, kind, &case)).collect()
}

/// Returns the rows for many clients, each compared to the same design with uniform keys.
pub(crate) fn crowded(rounds: &[Rounds], uniform: &[Rounds], case: impl Fn(Design) -> String) -> Vec<Row> {
    let kinds = [P50, MEAN, P99, RATES, TRIPS];
    let mut rows: Vec<Row> = kinds.into_iter().flat_map(|kind| pair(rounds, kind, &case)).collect();
    if uniform.is_empty() {
        return rows;
    }
    for (metric, unit, figure) in [P50, MEAN] {
        for design in Design::ALL {
            let row = Row::new("block", case(design), metric, unit, &of(rounds, design, figure));
            let row = row.against("uniform keys", &of(uniform, design, figure));
            let judged = design == Design::PrismRs && metric == P50.0;
            rows.push(if judged { row.within(SKEWED) } else { row });
        }
    }
    rows
}
