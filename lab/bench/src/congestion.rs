//! `remora bench congestion`: two flows that share a bottleneck of a simulated network, without congestion
//! control, with DCQCN and with TIMELY. The time is simulated, the code is the NIC's own, and each round has
//! another seed.

mod bottleneck;

use anyhow::Result;
use indicatif::ProgressBar;
use remora_scenario::scenario::ControlName;

use super::{Args, Report, Row, plot};
use bottleneck::{Bottleneck, Outcome, RATE, Sample, jain};
use remora_options::output;

const MS: u64 = 1_000_000;
/// The time between the starts of the two flows, and the time from the last start to the end of the run.
const APART_NS: u64 = 5 * MS;
const LAST_NS: u64 = 60 * MS;

const CONTESTANTS: [(&str, ControlName); 3] = [
    ("none", ControlName::None),
    ("dcqcn", ControlName::Dcqcn),
    ("timely-patched", ControlName::TimelyPatched),
];

fn bottleneck(control: ControlName, seed: u64) -> Bottleneck {
    let sample_ns = MS / 2;
    Bottleneck { apart_ns: APART_NS, last_ns: LAST_NS, sample_ns, ..Bottleneck::of_two(control, seed) }
}

/// The results of one contestant, one value per round.
#[derive(Default)]
struct Figures {
    /// Jain's index and the sum of the rates, both in the last quarter.
    jain: Vec<f64>,
    sum: Vec<f64>,
    /// The longest queue in the second half, in bytes.
    queue: Vec<f64>,
    /// The outcome of the first round, for the plots.
    shown: Option<Outcome>,
}

/// Runs `remora bench congestion`: adds a row for each result to the report, and draws the plots.
///
/// # Errors
/// A process does not start or ends early, an answer is wrong, or a file cannot be written.
pub(crate) fn run(args: &Args, report: &mut Report) -> Result<()> {
    output::folder(&args.report)?;
    let bar = ProgressBar::new(u64::from(args.rounds) * CONTESTANTS.len() as u64);
    let mut all: [Figures; 3] = Default::default();
    for round in 0..u64::from(args.rounds) {
        for ((_, control), figures) in CONTESTANTS.iter().zip(&mut all) {
            let outcome = bottleneck(*control, round).run()?;
            let rates = outcome.rates(APART_NS + LAST_NS / 4 * 3);
            figures.jain.push(jain(&rates));
            figures.sum.push(rates.iter().sum());
            figures.queue.push(outcome.queue(APART_NS + LAST_NS / 2) as f64);
            figures.shown.get_or_insert(outcome);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    rows(&all).into_iter().for_each(|row| report.add(row));
    for ((name, _), figures) in CONTESTANTS.iter().zip(&all) {
        if let Some(outcome) = &figures.shown {
            rates_plot(name, outcome).write(&args.report.join(format!("congestion-{name}.svg")))?;
        }
    }
    queue_plot(&all).write(&args.report.join("congestion-queue.svg"))
}

fn rows(all: &[Figures; 3]) -> Vec<Row> {
    let mut rows = Vec::new();
    let fair = vec![1.0; all[0].jain.len()];
    let link = vec![RATE as f64; all[0].jain.len()];
    for ((name, control), figures) in CONTESTANTS.iter().zip(all) {
        let row = |metric, unit, rounds: &[f64]| {
            Row::new("congestion", format!("world/two flows/{name}"), metric, unit, rounds)
        };
        let share = row("Jain's index", "", &figures.jain).against("equal shares", &fair);
        let sum = row("rate of both", "b/s", &figures.sum).against("the link", &link);
        let queue = row("longest queue", "B", &figures.queue);
        if *control == ControlName::None {
            rows.extend([share, sum, queue]);
        } else {
            let queue = queue.against("none", &all[0].queue).within(0.5);
            rows.extend([share.at_least(0.95), sum, queue]);
        }
    }
    rows
}

/// Returns the labels of the time axis: milliseconds at every twentieth sample.
fn times(outcome: &Outcome) -> Vec<String> {
    let label = |(number, sample): (usize, &Sample)| {
        if (number + 1).is_multiple_of(20) { format!("{}", sample.at_ns / MS) } else { String::new() }
    };
    outcome.samples.iter().enumerate().map(label).collect()
}

fn rates_plot<'a>(name: &'a str, outcome: &Outcome) -> plot::Plot<'a> {
    let line = |flow: usize| plot::Line {
        name: format!("flow {}", flow + 1),
        values: outcome.samples.iter().map(|sample| sample.rates[flow] / 1e9).collect(),
    };
    plot::Plot {
        title: match name {
            "dcqcn" => "Two flows with DCQCN over one link of 40 Gb/s",
            "timely-patched" => "Two flows with patched TIMELY over one link of 40 Gb/s",
            _ => "Two flows without control over one link of 40 Gb/s",
        },
        x: "ms",
        y: "Gb/s",
        labels: times(outcome),
        lines: vec![line(0), line(1)],
        ..plot::Plot::default()
    }
}

fn queue_plot(all: &[Figures; 3]) -> plot::Plot<'static> {
    let shown = all.iter().filter_map(|figures| figures.shown.as_ref());
    let lines = CONTESTANTS.iter().zip(shown).map(|((name, _), outcome)| plot::Line {
        name: (*name).to_owned(),
        values: outcome.samples.iter().map(|sample| sample.queue as f64 / 1e3).collect(),
    });
    plot::Plot {
        title: "Bytes that wait before the bottleneck",
        x: "ms",
        y: "kB",
        labels: all[0].shown.as_ref().map(times).unwrap_or_default(),
        lines: lines.collect(),
        ..plot::Plot::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_and_queue_are_judged_for_those_who_control() {
        let figures = |jain: f64, queue: f64| Figures {
            jain: vec![jain],
            sum: vec![38e9],
            queue: vec![queue],
            shown: None,
        };
        let rows = rows(&[figures(0.5, 1e6), figures(0.96, 4e5), figures(0.94, 6e5)]);
        let judged: Vec<_> = rows.iter().map(|row| (row.metric, row.holds)).collect();
        let expected = [
            ("Jain's index", None),
            ("rate of both", None),
            ("longest queue", None),
            ("Jain's index", Some(true)),
            ("rate of both", None),
            ("longest queue", Some(true)),
            ("Jain's index", Some(false)),
            ("rate of both", None),
            ("longest queue", Some(false)),
        ];
        assert_eq!(judged, expected);
        assert_eq!(rows[0].value, 0.5);
    }
}
