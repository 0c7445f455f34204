//! Runs the scenarios of all comparisons in parallel.

use std::io::IsTerminal as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result};
use indicatif::{ProgressBar, ProgressStyle};
use remora_scenario::run::{Row, Run};

use super::super::load;
use super::case::{Case, Reference};

/// Simulated time in picoseconds between two updates of the progress bar.
const STEP: u64 = 20_000_000;

/// The results of Remora for one case.
pub(crate) struct Measured {
    /// Flows that have finished in Remora's run.
    pub rows: Vec<Row>,
    /// Number of packets that were lost.
    pub lost: u64,
}

/// Runs all cases of the comparisons, `jobs` of them at the same time.
///
/// # Errors
/// Fails with the first case that cannot run.
pub(crate) fn all(asked: &[Reference], jobs: usize) -> Result<Vec<Vec<Measured>>> {
    let cases: Vec<(&Reference, &Case)> =
        asked.iter().flat_map(|asked| asked.cases.iter().map(move |case| (asked, case))).collect();
    let bar = bar(cases.iter().map(|(_, case)| case.theirs.len()).sum())?;
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    // A run must stay on the thread that created it, because the engines of its hosts belong to that
    // thread.
    let work = || {
        while let Some(&(asked, case)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let measured = one(case, &bar).with_context(|| asked.name());
            results.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((case, measured));
        }
    };
    std::thread::scope(|scope| (0..jobs.min(cases.len())).for_each(|_| drop(scope.spawn(work))));
    bar.finish_and_clear();
    let mut results = results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut result_of = |case: &Case| {
        let index =
            results.iter().position(|(done, _)| std::ptr::eq(*done, case)).context("a run panicked")?;
        results.swap_remove(index).1
    };
    asked.iter().map(|asked| asked.cases.iter().map(&mut result_of).collect()).collect()
}

fn one(case: &Case, bar: &ProgressBar) -> Result<Measured> {
    let scenario = load::load(&case.scenario)?.scenario;
    let mut run = Run::new(&scenario).map_err(anyhow::Error::msg)?;
    let mut rows = Vec::new();
    while !run.is_over() {
        let limit = run.progress().now.after(STEP);
        while let Some(row) = run.advance(limit) {
            rows.push(row);
            bar.inc(1);
        }
    }
    Ok(Measured { lost: run.totals().lost().packets, rows })
}

/// Returns a progress bar, which is visible on a terminal only.
fn bar(flows: usize) -> Result<ProgressBar> {
    if !std::io::stderr().is_terminal() {
        return Ok(ProgressBar::hidden());
    }
    let style = ProgressStyle::with_template("{spinner} {wide_bar} {pos}/{len} flows {elapsed}, {eta} left")?;
    Ok(ProgressBar::new(flows as u64).with_style(style))
}
