//! Figures 1 to 10 and 12 and Table 1 of IRN (SIGCOMM '18, section 4), simulated with the NIC's own code on
//! 54 hosts. Each figure shows the paper's numbers as well. Numbers marked `stated` are in the available
//! text of the paper; others are from memory.

mod hardware;
mod incast;
mod load;
mod tail;
mod trials;

use std::path::Path;

use anyhow::{Result, bail};
use remora_fabric::engine::Picos;
use remora_scenario::experiment::irn::Setting;
use remora_scenario::units::Time;

use crate::{Report, Row};
use remora_options::output;
use remora_options::progress;
use remora_plot::{Drawing, write};

use super::Args;
use super::notes::Notes;

/// Extent of the simulations.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Length {
    /// Number of seeds; the seeds are 1 to this number.
    seeds: u64,
    /// The time during which flows start, and the time from which on flows count.
    duration: Time,
    warm: Picos,
    /// Number of simulations that run in parallel.
    jobs: usize,
    /// True for the short run of the tests: without patched TIMELY and incast, and with known signs.
    quick: bool,
}

impl Length {
    fn of(args: &Args) -> Length {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let jobs = args.jobs.unwrap_or(cores);
        let us = |us: u64| us * Picos::MICROSECOND;
        if args.quick {
            return Length { seeds: 1, duration: Time(us(1_000)), warm: Picos(us(100)), jobs, quick: true };
        }
        let seeds = u64::from(args.rounds);
        Length { seeds, duration: Time(us(10_000)), warm: Picos(us(1_000)), jobs, quick: false }
    }

    fn setting(&self, seed: u64) -> Setting {
        Setting { duration: self.duration, seed, ..Setting::default() }
    }
}

/// A figure: the drawings side by side, and its rows.
struct Figure {
    number: String,
    drawings: Vec<Box<dyn Drawing>>,
    numbers: Vec<String>,
    rows: Vec<Row>,
}

/// Runs the experiments and draws them into the folder of `args`.
///
/// # Errors
/// Fails if a run ends with unfinished flows or findings, or, with `--quick`, if a sign is not the expected
/// one.
pub(crate) fn run(args: &Args) -> Result<()> {
    let length = Length::of(args);
    let mut report = Report::new(args.json);
    let bar = progress::bar(0, "runs")?;
    output::folder(&args.report)?;
    let trials = load::trials(&length, &bar)?;
    let mut figures = load::figures(&length, &trials)?;
    if !args.quick {
        figures.push(tail::figure(&length, &trials));
        figures.extend(incast::figures(&length, &bar)?);
    }
    bar.finish_and_clear();
    for figure in figures {
        draw(&args.report, &figure)?;
        figure.rows.into_iter().for_each(|row| report.add(row));
    }
    hardware::rows(args)?.into_iter().for_each(|row| report.add(row));
    report.finish();
    let wrong = load::signs(&length, &trials);
    match wrong.as_slice() {
        [] => Ok(()),
        wrong if args.quick => bail!(
            "{} signs are not the known ones; mend the cause, or sim/scenario/src/experiment/irn/signs.toml:\n{}",
            wrong.len(),
            wrong.join("\n")
        ),
        wrong => {
            wrong.iter().for_each(|line| eprintln!("beside the paper: {line}"));
            Ok(())
        }
    }
}

fn draw(folder: &Path, figure: &Figure) -> Result<()> {
    let notes = Notes::new("Simulated: the NIC's own code in virtual time.", &figure.numbers, &not_given());
    let notes: &dyn Drawing = &notes;
    let drawings: Vec<&dyn Drawing> =
        figure.drawings.iter().map(|drawing| &**drawing).chain([notes]).collect();
    write(&folder.join(format!("irn-figure-{}.svg", figure.number)), &drawings)
}

/// Returns the parameters that the paper's excerpt does not state, for the notes.
fn not_given() -> [String; 6] {
    [
        "sizes: 50 % of 32 B to 1 KB, 35 % to 200 KB, 15 % to 3 MB, log-uniform within each",
        "frames: Ethernet's, and IRN's headers on each packet; slowdown over RoCE's time alone",
        "acknowledgements: one for each packet, in the data's class",
        "switches: virtual output queues, an output takes its inputs in turn",
        "DCQCN: marks from 5 KB to 200 KB, 1 %; TIMELY: its paper's thresholds",
        "measured: flows that start after the first tenth",
    ]
    .map(str::to_owned)
}

/// Makes a row of a figure.
fn row(case: &str, metric: &'static str, unit: &'static str, rounds: &[f64]) -> Row {
    Row::new("irn", format!("simulated/{case}"), metric, unit, rounds)
}
