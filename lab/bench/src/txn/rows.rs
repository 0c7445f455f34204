//! The rows of the rounds: PRISM-TX compared with FaRM, and FaRM with the bare verbs.

use remora_store::txn::Design;

use super::system::Round;
use crate::{Report, Row};

/// Largest ratio of PRISM-TX's latency, and least ratio of its throughput, to FaRM's, after the paper's
/// Figure 9.
pub(crate) const LATENCY: f64 = 0.82;
pub(crate) const RATE: f64 = 1.2;
/// Least ratio of PRISM-TX's rate to FaRM's where PRISM-TX only has to lead.
pub(crate) const AHEAD: f64 = 1.0;
/// Largest ratio of FaRM's latency to its round trips of bare verbs plus its CPU work.
const LIMIT: f64 = 1.15;

/// A design and its rounds.
pub(crate) type Rounds = (Design, Vec<Round>);

/// Name and unit of a figure, and the function that takes it from a round.
type Kind = (&'static str, &'static str, fn(&Round) -> f64);

const KINDS: [Kind; 8] = [
    ("latency_p50", "ns", |round| round.p50),
    ("latency_p99", "ns", |round| round.p99),
    ("latency_mean", "ns", |round| round.mean),
    ("rate", "1/s", |round| round.rate),
    ("round_trips", "per transaction", |round| round.round_trips),
    ("attempted", "transactions", |round| round.attempted),
    ("committed", "transactions", |round| round.committed),
    ("aborted", "transactions", |round| round.aborted),
];

fn of(rounds: &[Rounds], wanted: Design, figure: fn(&Round) -> f64) -> Vec<f64> {
    let mine = rounds.iter().filter(|(design, _)| *design == wanted);
    mine.flat_map(|(_, rounds)| rounds.iter().map(figure)).collect()
}

/// Returns all rows of one window. If `judged` is set, the median latency has a bound.
pub(crate) fn point(rounds: &[Rounds], judged: bool, case: impl Fn(Design) -> String, report: &mut Report) {
    for (metric, unit, figure) in KINDS {
        let [ours, theirs] = [Design::PrismTx, Design::Farm].map(|design| of(rounds, design, figure));
        report.add(Row::new("txn", case(Design::Farm), metric, unit, &theirs));
        let row = Row::new("txn", case(Design::PrismTx), metric, unit, &ours);
        let counted = unit == "transactions";
        let row = if counted { row } else { row.against(Design::Farm.name(), &theirs) };
        report.add(if judged && metric == "latency_p50" { row.within(LATENCY) } else { row });
    }
}

/// Returns the rows of each round's best rate over some windows; `least` bounds their ratio.
pub(crate) fn peak(windows: &[Vec<Rounds>], least: Option<f64>, case: impl Fn(Design) -> String) -> [Row; 2] {
    let [ours, theirs] = [Design::PrismTx, Design::Farm].map(|design| {
        let each = windows.iter().map(|rounds| of(rounds, design, |round| round.rate));
        each.reduce(|best, next| best.iter().zip(&next).map(|(best, next)| best.max(*next)).collect())
            .unwrap_or_default()
    });
    let row = Row::new("txn", case(Design::PrismTx), "rate", "1/s", &ours);
    let row = row.against(Design::Farm.name(), &theirs);
    let row = match least {
        Some(least) => row.at_least(least),
        None => row,
    };
    [Row::new("txn", case(Design::Farm), "rate", "1/s", &theirs), row]
}

/// Components of the least possible latency of FaRM's transactions in nanoseconds, one value per round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Should {
    /// Time of the bare verbs' round trips that make up a transaction.
    pub verbs: Vec<f64>,
    /// Time of the same number of bare READs.
    pub reads: Vec<f64>,
    /// CPU time of the client and of the server's program.
    pub work: Vec<f64>,
}

/// Adds the rows that compare FaRM's latency to its lower bound.
pub(crate) fn floor(rounds: &[Rounds], should: &Should, case: &str, report: &mut Report) {
    let p50 = Row::new("txn", case, "latency_p50", "ns", &of(rounds, Design::Farm, |round| round.p50));
    let whole: Vec<f64> = should.verbs.iter().zip(&should.work).map(|(verbs, work)| verbs + work).collect();
    report.add(Row::new("txn", case, "cpu_work", "ns per transaction", &should.work));
    report.add(p50.clone().against("round trips x bare READ", &should.reads));
    report.add(p50.clone().against("round trips of its bare verbs", &should.verbs));
    report.add(p50.against("round trips of its bare verbs + cpu_work", &whole).within(LIMIT));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_the_best_window_of_each_round() {
        let window = |ours: [f64; 2], theirs: [f64; 2]| -> Vec<Rounds> {
            let rounds = |rates: [f64; 2]| rates.map(|rate| Round { rate, ..Round::default() }).to_vec();
            vec![(Design::PrismTx, rounds(ours)), (Design::Farm, rounds(theirs))]
        };
        let windows = [window([10.0, 20.0], [8.0, 8.0]), window([12.0, 16.0], [9.0, 7.0])];
        let [theirs, ours] = peak(&windows, Some(1.2), |design| design.name().to_owned());
        assert_eq!((&theirs.rounds[..], &ours.rounds[..]), (&[9.0, 8.0][..], &[12.0, 20.0][..]));
        assert_eq!((ours.baseline_value, ours.holds), (Some(8.5), Some(true)));
    }
}
