//! Figure 14: the interruption of a client's reads while a key changes.

use remora_fabric::rma::path::Path;
use remora_fabric::rma::rotation::{DRIVER_NS, GRANT_NS, RECONNECT_NS, Rotation, gap_ns, reconnect_gap_ns};

use super::{Figure, Length, cipher, notes, row};
use remora_plot::{Line, Mark, Plot};

/// The names of the cases, and the paper's values in microseconds.
const WAYS: [(&str, Option<f64>); 4] = [
    ("Rekey, announced", Some(1.0)),
    ("Rekey, asked for", None),
    ("driver", Some(27.0)),
    ("RC connects again", Some(2_000.0)),
];

/// Runs the experiment and draws the figure.
pub(crate) fn figure(_: Length) -> Figure {
    let [announced, unannounced, driver] = [Rotation::Announced, Rotation::Unannounced, Rotation::Driver]
        .map(|rotation| gap_ns(rotation, &cipher));
    let gaps = [announced, unannounced, driver, reconnect_gap_ns()].map(|ns| ns as f64);
    let mut rows = Vec::new();
    let mut numbers = Vec::new();
    let mut marks = Vec::new();
    for (place, ((name, paper), gap)) in WAYS.iter().zip(gaps).enumerate() {
        let case = format!("figure-14/{}", name.replace(", ", "/").replace(' ', "-").to_lowercase());
        let row = row(&case, "gap", "ns", gap);
        rows.push(paper.map_or_else(|| row.clone(), |us| row.clone().against("paper", &[us * 1e3])));
        marks.extend(paper.map(|value| Mark { line: None, place, value }));
        let ratio = gap / gaps[0];
        numbers.push(format!("{name}: {:.1} us, {ratio:.0} times the first", gap / 1e3));
    }
    numbers.push("paper: < 1 us, 27 us, > 2 ms: 1 to 27 to 2000".to_owned());
    let us = |ns: u64| ns as f64 / 1e3;
    let not_given = [
        format!(
            "constants, not predictions: driver {} us and connecting {} us, the paper's",
            us(DRIVER_NS),
            us(RECONNECT_NS)
        ),
        format!("a grant takes {} us of software: the paper's time to block and wake", us(GRANT_NS)),
        format!(
            "round trip {} us, as in Figure 15; a read of 64 B begins each 0.5 us",
            us(Path::simulation(0).rtt_ns)
        ),
        "a client knows of the change when a read fails".to_owned(),
    ];
    let plot = Plot {
        title: "Figure 14, simulated with modelled software: gap of a client",
        x: "how the key changes",
        y: "us",
        labels: WAYS.map(|(name, _)| name.to_owned()).to_vec(),
        lines: vec![Line { name: "gap".to_owned(), values: gaps.iter().map(|ns| ns / 1e3).collect() }],
        by_factors: true,
        stated: Some(("crosses: the paper's", marks)),
    };
    Figure { number: "14", drawings: vec![Box::new(plot)], notes: notes(&numbers, &not_given), rows }
}
