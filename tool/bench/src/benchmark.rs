//! What each benchmark is to `remora bench` and `remora figures`.

use anyhow::Result;

use crate::Report;

/// A benchmark, with the options that it was given.
pub trait Benchmark {
    /// Returns whether the benchmark prints one JSON object per line instead of a table.
    fn json(&self) -> bool;

    /// Measures, adds a row for each figure to the report, and draws its plots.
    ///
    /// # Errors
    /// A process does not start or ends too early, an answer is wrong, or a file cannot be written.
    fn measure(&self, report: &mut Report) -> Result<()>;
}

/// Runs a benchmark and prints its rows.
///
/// # Errors
/// The benchmark's.
pub fn run(benchmark: &dyn Benchmark) -> Result<Report> {
    let mut report = Report::new(benchmark.json());
    benchmark.measure(&mut report)?;
    report.finish();
    Ok(report)
}
