//! Shows the progress of a run: a bar on a terminal, or JSON lines.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use remora_scenario::run::Progress;
use serde_json::json;

use super::summary::Summary;

/// Minimum time between two updates.
const OFTEN: Duration = Duration::from_millis(250);

/// The progress display of a run.
pub(crate) struct Display {
    bar: Option<ProgressBar>,
    json: bool,
    started: Instant,
    shown: Instant,
}

impl Display {
    /// Creates a display for a run with this number of flows.
    pub(crate) fn new(json: bool, flows: usize) -> Result<Display> {
        let template = "{spinner} {wide_bar} {pos}/{len} flows {msg} {elapsed}, {eta} left";
        let bar = (!json && std::io::stderr().is_terminal())
            .then(|| {
                Ok::<_, anyhow::Error>(
                    ProgressBar::new(flows as u64).with_style(ProgressStyle::with_template(template)?),
                )
            })
            .transpose()?;
        let now = Instant::now();
        Ok(Display { bar, json, started: now, shown: now })
    }

    /// Updates the display if the last update is old enough.
    pub(crate) fn show(&mut self, progress: &Progress, summary: &Summary) -> Result<()> {
        if self.shown.elapsed() < OFTEN {
            return Ok(());
        }
        self.shown = Instant::now();
        let us = progress.now.0 as f64 / 1e6;
        let rate = progress.hops as f64 / self.started.elapsed().as_secs_f64();
        let [p50, p99] = [0.5, 0.99].map(|part| summary.slowdown(part));
        if let Some(bar) = &self.bar {
            bar.set_position(progress.flows.0 as u64);
            bar.set_message(format!(
                "{us:.0} us, {:.1} M hops/s, slowdown {p50:.2} (p99 {p99:.2})",
                rate / 1e6
            ));
        }
        if self.json {
            let line = json!({
                "progress": { "time_us": us, "flows_done": progress.flows.0, "flows": progress.flows.1,
                    "hops": progress.hops, "hops_per_s": rate, "slowdown_p50": p50, "slowdown_p99": p99 }
            });
            // A reader that closes the pipe early is not an error.
            let _ = writeln!(std::io::stdout(), "{line}");
        }
        Ok(())
    }

    /// Removes the bar at the end of the run.
    pub(crate) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Returns the real time since the start of the run.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}
