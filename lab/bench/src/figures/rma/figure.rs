//! A figure, its rows and notes, and the duration of the experiments.

use remora_cipher::Aes;
use remora_nic::rma::Cipher;
use remora_plot::Drawing;

use crate::Row;
use crate::curves::{Curve, Curves};
use crate::figures::notes::Notes;

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
    pub(super) fn of(self, whole: u64) -> u64 {
        match self {
            Length::Whole => whole,
            #[cfg(test)]
            Length::Short => whole.div_ceil(20),
        }
    }
}

/// A figure: the drawings side by side, notes on the paper's numbers and missing parameters, and rows.
pub(super) struct Figure {
    pub(super) number: &'static str,
    pub(super) drawings: Vec<Box<dyn Drawing>>,
    pub(super) notes: Notes,
    pub(super) rows: Vec<Row>,
}

/// Creates the cipher of an engine.
pub(super) fn cipher() -> Box<dyn Cipher> {
    Box::new(Aes::new(64))
}

/// Makes a row of a figure.
pub(super) fn row(case: &str, metric: &'static str, unit: &'static str, value: f64) -> Row {
    Row::new("rma", format!("simulated/{case}"), metric, unit, &[value])
}

/// Converts a fraction of the line's goodput to Gb/s.
pub(super) fn gigabits(part: f64) -> f64 {
    part * remora_fabric::rma::path::line_goodput() / 1e9
}

/// Makes a plot of curves over numeric axes.
pub(super) fn curves(
    title: &'static str,
    x: &'static str,
    y: &'static str,
    curves: Vec<Curve>,
) -> Box<dyn Drawing> {
    Box::new(Curves { title, x, y, curves, ..Curves::default() })
}

/// Returns the notes: the paper's numbers and the measured ones, and the parameters that the paper does not
/// give.
pub(super) fn notes(numbers: &[String], not_given: &[String]) -> Notes {
    Notes::new("Simulated: the NIC's own code in virtual time.", numbers, &[not_given, &network()].concat())
}

/// Returns the parameters that all experiments share, for the notes.
pub(super) fn network() -> [String; 3] {
    [
        "network: one switch, store and forward; ports of 100 Gb/s hold 2 frames, the switch's 8 MiB"
            .to_owned(),
        "frames: one for each 4 KB; IP, UDP, header and tag counted, Ethernet's preamble and gap not"
            .to_owned(),
        "host: programs, PCIe and the cipher take no time of their own; they are in the round trip"
            .to_owned(),
    ]
}
