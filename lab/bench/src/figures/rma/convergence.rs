//! Figure 15: two flows under the congestion control of the executor.

use remora_fabric::rma::convergence::{Op, Outcome, RATE_OVER_NS, SECOND_NS, Setup, run};
use remora_fabric::rma::path::Path;
use remora_transport::rma::executor::{CongestionSettings, ControlKind};

use super::{Figure, Length, cipher, gigabits, notes, row};
use crate::curves::Curve;
use crate::{Row, plot::Drawing};

const US: u64 = 1_000;
/// The durations of a run with and without the local congestion signal.
const LONG_NS: [u64; 2] = [1_000 * US, 4_000 * US];
/// The initial windows; the paper does not give its own.
const INITIAL: [f64; 6] = [1.0, 4.0, 8.0, 13.0, 16.0, 32.0];
/// The nanoseconds between two points of a curve.
const POINT_NS: u64 = 10 * US;

/// Outcomes for one initial window, with the local congestion signal and without it.
struct Both {
    with: Outcome,
    without: Outcome,
}

fn both(initial: f64, length: Length) -> Both {
    let one = |kind, ns| run(&Setup::new(kind, initial, length.of(ns)), &cipher);
    Both { with: one(ControlKind::Delays, LONG_NS[0]), without: one(ControlKind::TotalDelay, LONG_NS[1]) }
}

/// Returns the ratio of the convergence time without the local signal to that with it. If flows do not
/// converge without the signal, the result is a lower bound. `None` if they do not converge with it.
fn slower(both: &Both) -> Option<f64> {
    let run = both.without.ns.saturating_sub(SECOND_NS);
    let without = both.without.fair_ns().unwrap_or(run);
    Some(without as f64 / both.with.fair_ns()?.max(US) as f64)
}

/// Runs the experiment and draws the figure.
pub(crate) fn figure(length: Length) -> Figure {
    let paper = Path::simulation(0).congestion();
    let mut rows = Vec::new();
    let mut table = Vec::new();
    for initial in INITIAL {
        let all = both(initial, length);
        table.push(line(initial, &all));
        rows.extend(measured(&format!("/initial-{initial}"), &all));
    }
    let own = both(paper.initial, length);
    let run = own.without.ns.saturating_sub(SECOND_NS) / US;
    let dip = own.with.dip(length.of(200 * US));
    let [least, most] = own.with.cwnd(200 * US, SECOND_NS);
    let mut numbers = vec![
        format!("a: 95 % of the line after {} (paper: 40 us)", us(own.with.line_rate_ns())),
        format!("a: cwnd {least:.1} to {most:.1} (paper: 15); {} failures (paper: none)", own.with.failures),
        format!("b: each within 10 % of half of both after {} (paper: 25 us)", us(own.with.fair_ns())),
        format!(
            "b: both together fall to {:.0} % of the line, and have 90 % again after {}",
            dip.least * 100.0,
            us(dip.again_ns)
        ),
        format!("c: {} of {run} us without the local signal (paper: 20 times)", us(own.without.fair_ns())),
        format!("d: issue delay {} us in the first 10 us (paper: at once)", jump(&own.with) / 1e3),
        "by initial window: a, b, c".to_owned(),
    ];
    numbers.extend(table);
    rows.extend(judged(&own));
    Figure { number: "15", drawings: drawings(&own), notes: notes(&numbers, &not_given(&paper)), rows }
}

fn not_given(paper: &CongestionSettings) -> [String; 4] {
    let us = |ns: u64| ns as f64 / 1e3;
    [
        format!(
            "targets: issue delay {} us, remote delay {} us",
            us(paper.local_target),
            us(paper.remote_target)
        ),
        format!("windows: initial {}, {} to {} (calibrated on a alone)", paper.initial, paper.min, paper.max),
        "c: one window a server, whose target is the sum of both".to_owned(),
        format!("rates are those of {} us", us(RATE_OVER_NS)),
    ]
}

fn us(ns: Option<u64>) -> String {
    ns.map_or("not within the run".to_owned(), |ns| format!("{} us", ns / US))
}

/// A line of the table of initial windows.
fn line(initial: f64, all: &Both) -> String {
    let least = if all.without.fair_ns().is_none() { "> " } else { "" };
    let slower = slower(all).map_or(String::new(), |times| format!(" ({least}{times:.0} times)"));
    let a = us(all.with.line_rate_ns());
    let b = us(all.with.fair_ns());
    let c = us(all.without.fair_ns());
    format!("  {initial}: {a}, {b}, {c}{slower}; {} failures", all.with.failures)
}

/// Makes a row for a time. If the time is unknown because the run ended earlier, the run's length is a lower
/// bound.
fn time(figure: &str, metric: &'static str, ns: Option<u64>, run_ns: u64) -> Row {
    let value = ns.unwrap_or(run_ns) as f64;
    let reason = ns.is_none().then_some("not within the run: a lower bound");
    Row { reason, ..row(&format!("figure-{figure}"), metric, "ns", value) }
}

/// Returns the rows of the times of parts a, b and c, whose names end in `suffix`.
fn measured(suffix: &str, all: &Both) -> [Row; 3] {
    let Both { with, without } = all;
    let [with_ns, without_ns] = [with, without].map(|outcome| outcome.ns.saturating_sub(SECOND_NS));
    [
        time(&format!("15a{suffix}"), "to line rate", with.line_rate_ns(), SECOND_NS.min(with.ns)),
        time(&format!("15b{suffix}"), "to half each", with.fair_ns(), with_ns),
        time(&format!("15c{suffix}"), "to half each", without.fair_ns(), without_ns),
    ]
}

/// Returns the rows of the default settings, with their bounds.
fn judged(own: &Both) -> Vec<Row> {
    let [line, fair, _] = measured("", own);
    let slower = row("figure-15c", "without the local signal", "", slower(own).unwrap_or(0.0));
    let mut rows = vec![
        line.against("paper", &[40_000.0]).within(1.0),
        fair.against("paper", &[25_000.0]).within(1.2),
        slower.against("paper", &[20.0]).at_least(0.5),
        row("figure-15d", "issue delay in the first 10 us", "ns", jump(&own.with)),
    ];
    let cwnd = own.with.cwnd(200 * US, SECOND_NS);
    for (metric, value) in [("cwnd, least", cwnd[0]), ("cwnd, most", cwnd[1])] {
        let row = row("figure-15a", metric, "", value).against("paper", &[15.0]);
        rows.push(row.between(0.93, 1.07));
    }
    rows
}

/// Returns the longest issue delay in the first 10 us after the start of the second flow.
fn jump(outcome: &Outcome) -> f64 {
    let ops = outcome.within(SECOND_NS, SECOND_NS + 10 * US);
    ops.iter().map(|op| op.issue_delay).max().unwrap_or(0) as f64
}

/// Returns a point for each step of time: microseconds, and the value of `value` at that time.
fn points(from_ns: u64, to_ns: u64, value: impl Fn(u64) -> f64) -> Vec<(f64, f64)> {
    (from_ns..to_ns)
        .step_by(POINT_NS as usize)
        .map(|time_ns| ((time_ns - from_ns) as f64 / 1e3, value(time_ns)))
        .collect()
}

fn rates(outcome: &Outcome, from_ns: u64, to_ns: u64) -> Vec<Curve> {
    let curve = |flow: usize| Curve {
        name: format!("flow {}", flow + 1),
        points: points(from_ns, to_ns, |time_ns| gigabits(outcome.rate(flow, time_ns))),
    };
    vec![curve(0), curve(1)]
}

/// Returns the mean of a field over the time of a point.
fn mean(outcome: &Outcome, start_ns: u64, value: fn(&Op) -> f64) -> f64 {
    let ops = outcome.within(start_ns, start_ns + POINT_NS);
    ops.iter().map(value).sum::<f64>() / ops.len().max(1) as f64
}

fn drawings(own: &Both) -> Vec<Box<dyn Drawing>> {
    let curve = |name: &str, start_ns, end_ns, value: fn(&Op) -> f64| Curve {
        name: name.to_owned(),
        points: points(start_ns, end_ns, |time_ns| mean(&own.with, time_ns, value)),
    };
    let rate = Curve {
        name: "rate, Gb/s".to_owned(),
        points: points(0, 200 * US, |time_ns| gigabits(own.with.rate(0, time_ns))),
    };
    let a = vec![rate, curve("cwnd, operations", 0, 200 * US, |op| op.cwnd)];
    let start_ns = SECOND_NS - 50 * US;
    let end_ns = SECOND_NS + 150 * US;
    let d = vec![
        curve("issue delay", start_ns, end_ns, |op| op.issue_delay as f64 / 1e3),
        curve("remote delay", start_ns, end_ns, |op| op.remote_delay as f64 / 1e3),
    ];
    let x = "us; the second flow begins at 50";
    let long = SECOND_NS + 1_500 * US;
    vec![
        super::curves("Figure 15a, simulated: one flow", "us", "Gb/s; operations", a),
        super::curves("Figure 15b, simulated: two flows", x, "Gb/s", rates(&own.with, start_ns, end_ns)),
        super::curves(
            "Figure 15c, simulated: no local signal",
            x,
            "Gb/s",
            rates(&own.without, start_ns, long),
        ),
        super::curves("Figure 15d, simulated: delays", x, "us", d),
    ]
}
