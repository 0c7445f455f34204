//! The progress output of an exercise: the number and the latency of the operations that ended in each
//! period.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use hdrhistogram::Histogram;
use serde_json::json;

use super::record::now;
use remora_options::print;

/// Longest latency that the histogram can distinguish, in microseconds.
const LONGEST: u64 = 3_600_000_000;

/// Counters of the current period.
pub(crate) struct Progress {
    every: Duration,
    next: Instant,
    times: Histogram<u64>,
    refused: u64,
    unknown: u64,
}

impl Progress {
    /// Makes a progress report with periods of `every` seconds.
    ///
    /// # Errors
    /// Fails if there is no memory for the histogram.
    pub(crate) fn new(every: f64) -> Result<Progress> {
        let every = Duration::from_secs_f64(every);
        let times = Histogram::new_with_bounds(1, LONGEST, 2).context("memory for times")?;
        Ok(Progress { every, next: Instant::now() + every, times, refused: 0, unknown: 0 })
    }

    /// Counts an operation that was started at `asked` and has succeeded.
    pub(crate) fn done(&mut self, asked: Instant) {
        self.times.saturating_record(asked.elapsed().as_micros() as u64);
    }

    /// Counts an operation that had no effect.
    pub(crate) fn refused(&mut self) {
        self.refused += 1;
    }

    /// Counts an operation whose result is unknown.
    pub(crate) fn unknown(&mut self) {
        self.unknown += 1;
    }

    /// Returns whether the current period is over.
    pub(crate) fn is_due(&self) -> bool {
        Instant::now() >= self.next
    }

    /// Prints the period's counters. `oldest` is the start of the oldest operation in progress.
    pub(crate) fn say(&mut self, oldest: Option<Instant>) {
        let waiting = oldest.map_or(0, |asked| asked.elapsed().as_micros() as u64);
        let times: Vec<(u64, u64)> = self
            .times
            .iter_recorded()
            .map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value()))
            .collect();
        print::line(json!({
            "clock": now() as f64 / 1e9,
            "operations": self.times.len(),
            "refused": self.refused,
            "unknown": self.unknown,
            "p50_us": self.times.value_at_quantile(0.5),
            "p99_us": self.times.value_at_quantile(0.99),
            "max_us": self.times.max(),
            "waiting_us": waiting,
            "times_us": times,
        }));
        self.times.reset();
        (self.refused, self.unknown) = (0, 0);
        // The next period starts at a multiple of the interval, however late this output is.
        while self.next <= Instant::now() {
            self.next += self.every;
        }
    }
}
