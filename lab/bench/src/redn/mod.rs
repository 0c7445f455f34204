//! `remora bench redn`: the figures of RedN (NSDI '22) in the time of a modelled ConnectX-5
//! (`remora_cost::chains`), compared with the authors' measurements; and measurements of this software in
//! real time (`real.rs`).

mod real;

use anyhow::Result;
use remora_cost::connectx5::CONNECTX5;
use remora_cost::number::Number;

use super::numbers::{self, Drawn};
use super::{Args, Report, Row};

/// The figures and tables to draw: the captions of their axes, and true if values grow by factors.
const DRAWN: [Drawn; 9] = [
    ("Figure 7", "verbs of 64 bytes", "latency, us", false),
    ("Figure 8", "NOPs in a chain", "latency, us", false),
    ("Figure 10", "bytes of a value, key in the first bucket", "latency, us", true),
    ("Figure 11", "bytes of a value, key in the second bucket", "latency, us", true),
    ("Figure 13", "the key is among so many elements", "latency, us", true),
    ("Figure 14", "bytes of a value, Memcached's table", "latency, us", true),
    ("Table 3", "verbs and constructs", "million a second", true),
    ("Table 4", "bytes of a value", "million GETs a second", true),
    ("Table 5", "bytes of a value", "latency, us", false),
];

/// Runs `remora bench redn`: adds a row for each result to the report, and draws the plots.
///
/// # Errors
/// A process does not start or ends early, an answer is wrong, or a file cannot be written.
pub(crate) fn run(args: &Args, report: &mut Report) -> Result<()> {
    let modelled = remora_cost::chains::numbers(&CONNECTX5);
    args.add_wanted(report, residuals(&modelled));
    args.add_wanted(report, real::run(args)?);
    args.check_found(report)?;
    numbers::draw(&args.report, "redn", "model time", &DRAWN, &modelled)
}

/// Returns the rows that compare each number of the model to the authors', with the deviation and its cause.
fn residuals(modelled: &[Number]) -> Vec<Row> {
    let rows = numbers::rows("redn", "ConnectX5", modelled).into_iter().zip(modelled);
    rows.map(|(row, number)| Row { reason: remora_cost::chains::reason(number), ..row }).collect()
}
