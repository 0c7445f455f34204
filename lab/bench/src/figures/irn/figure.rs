//! A figure and its rows, and the extent of the simulations.

use remora_fabric::engine::Picos;
use remora_plot::Drawing;
use remora_scenario::experiment::irn::Setting;
use remora_scenario::units::Time;

use crate::Row;
use crate::figures::Args;

/// Extent of the simulations.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Length {
    /// Number of seeds; the seeds are 1 to this number.
    pub(super) seeds: u64,
    /// The time during which flows start, and the time from which on flows count.
    pub(super) duration: Time,
    pub(super) warm: Picos,
    /// Number of simulations that run in parallel.
    pub(super) jobs: usize,
    /// True for the short run of the tests: without patched TIMELY and incast, and with known signs.
    pub(super) quick: bool,
}

impl Length {
    pub(super) fn of(args: &Args) -> Length {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let jobs = args.jobs.unwrap_or(cores);
        let us = |us: u64| us * Picos::MICROSECOND;
        if args.quick {
            return Length { seeds: 1, duration: Time(us(1_000)), warm: Picos(us(100)), jobs, quick: true };
        }
        let seeds = u64::from(args.rounds);
        Length { seeds, duration: Time(us(10_000)), warm: Picos(us(1_000)), jobs, quick: false }
    }

    pub(super) fn setting(&self, seed: u64) -> Setting {
        Setting { duration: self.duration, seed, ..Setting::default() }
    }
}

/// A figure: the drawings side by side, and its rows.
pub(super) struct Figure {
    pub(super) number: String,
    pub(super) drawings: Vec<Box<dyn Drawing>>,
    pub(super) numbers: Vec<String>,
    pub(super) rows: Vec<Row>,
}

/// Makes a row of a figure.
pub(super) fn row(case: &str, metric: &'static str, unit: &'static str, rounds: &[f64]) -> Row {
    Row::new("irn", format!("simulated/{case}"), metric, unit, rounds)
}
