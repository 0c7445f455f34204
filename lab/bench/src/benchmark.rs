//! The interface of each benchmark for `remora bench` and `remora figures`.

use anyhow::Result;

use crate::Report;

/// A benchmark with its options.
pub trait Benchmark {
    /// Returns whether the benchmark prints one JSON object per line instead of a table.
    fn json(&self) -> bool;

    /// Runs the measurements, adds a row for each result to the report, and draws the plots.
    ///
    /// # Errors
    /// Fails if a process does not start or ends early, an answer is wrong, or a file cannot be written.
    fn measure(&self, report: &mut Report) -> Result<()>;
}

/// Runs a benchmark and prints its rows.
///
/// # Errors
/// The errors of the benchmark.
pub fn run(benchmark: &dyn Benchmark) -> Result<Report> {
    let mut report = Report::new(benchmark.json());
    benchmark.measure(&mut report)?;
    report.finish();
    Ok(report)
}
