//! Figures 11, 12, 14, 15, 16a and 16b of 1RMA (SIGCOMM '20), simulated with the code of the NIC and of the
//! executor on the network of `remora_fabric::rma`. Each figure shows the paper's numbers and lists the
//! parameters that are chosen here.

mod convergence;
mod isolation;
mod jitter;
mod load;
mod rotation;

use std::path::Path;

use anyhow::Result;
use remora_cipher::Aes;
use remora_nic::rma::Cipher;

use crate::Row;
use crate::curves::{Curve, Curves};
use remora_options::output;
use remora_plot::{Drawing, write};

use super::notes::Notes;

/// Duration of the experiments.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// The duration of the published figures.
    Whole,
    /// A duration for tests, just enough to draw the figures.
    #[cfg(test)]
    Short,
}

impl Length {
    /// Returns this part of `whole`.
    fn of(self, whole: u64) -> u64 {
        match self {
            Length::Whole => whole,
            #[cfg(test)]
            Length::Short => whole.div_ceil(20),
        }
    }
}

/// A figure: the drawings side by side, notes on the paper's numbers and missing parameters, and rows.
struct Figure {
    number: &'static str,
    drawings: Vec<Box<dyn Drawing>>,
    notes: Notes,
    rows: Vec<Row>,
}

/// Runs all experiments and draws them into a folder. Returns the numbers behind them.
pub(crate) fn draw(folder: &Path, length: Length) -> Result<Vec<Row>> {
    output::folder(folder)?;
    let mut rows = Vec::new();
    let experiments: [fn(Length) -> Figure; 5] =
        [load::figure, isolation::figure, rotation::figure, convergence::figure, jitter::figure];
    for experiment in experiments {
        let figure = experiment(length);
        let notes: &dyn Drawing = &figure.notes;
        let drawings: Vec<&dyn Drawing> =
            figure.drawings.iter().map(|drawing| &**drawing).chain([notes]).collect();
        write(&folder.join(format!("1rma-figure-{}.svg", figure.number)), &drawings)?;
        rows.extend(figure.rows);
    }
    Ok(rows)
}

/// Creates the cipher of an engine.
fn cipher() -> Box<dyn Cipher> {
    Box::new(Aes::new(64))
}

/// Makes a row of a figure.
fn row(case: &str, metric: &'static str, unit: &'static str, value: f64) -> Row {
    Row::new("rma", format!("simulated/{case}"), metric, unit, &[value])
}

/// Converts a fraction of the line's goodput to Gb/s.
fn gigabits(part: f64) -> f64 {
    part * remora_fabric::rma::path::line_goodput() / 1e9
}

/// Makes a plot of curves over numeric axes.
fn curves(title: &'static str, x: &'static str, y: &'static str, curves: Vec<Curve>) -> Box<dyn Drawing> {
    Box::new(Curves { title, x, y, curves, ..Curves::default() })
}

/// Returns the notes: the paper's numbers and the measured ones, and the parameters that the paper does not
/// give.
fn notes(numbers: &[String], not_given: &[String]) -> Notes {
    Notes::new("Simulated: the NIC's own code in virtual time.", numbers, &[not_given, &network()].concat())
}

/// Returns the parameters that all experiments share, for the notes.
fn network() -> [String; 3] {
    [
        "network: one switch, store and forward; ports of 100 Gb/s hold 2 frames, the switch's 8 MiB"
            .to_owned(),
        "frames: one for each 4 KB; IP, UDP, header and tag counted, Ethernet's preamble and gap not"
            .to_owned(),
        "host: programs, PCIe and the cipher take no time of their own; they are in the round trip"
            .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each figure states that it is simulated, and the parameters that the paper does not give.
    #[test]
    fn each_figure_is_drawn_and_says_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let rows = draw(folder.path(), Length::Short).unwrap();
        for number in [11, 12, 14, 15, 16] {
            let svg =
                std::fs::read_to_string(folder.path().join(format!("1rma-figure-{number}.svg"))).unwrap();
            for words in ["Simulated", "Not in the paper", "</svg>"] {
                assert!(svg.contains(words), "figure {number}: {words}");
            }
            let own = format!("simulated/figure-{number}");
            assert!(rows.iter().any(|row| row.case.starts_with(&own)), "{own}");
        }
    }
}
