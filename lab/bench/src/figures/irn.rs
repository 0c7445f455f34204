//! Figures 1 to 10 and 12 and Table 1 of IRN (SIGCOMM '18, section 4), simulated with the NIC's own code on
//! 54 hosts. Each figure shows the paper's numbers as well. Numbers marked `stated` are in the available
//! text of the paper; others are from memory.

mod figure;
mod hardware;
mod incast;
mod load;
mod tail;
mod trials;

use std::path::Path;

use anyhow::{Result, bail};

use crate::Report;
use remora_options::output;
use remora_options::progress;
use remora_plot::{Drawing, write};

use super::Args;
use super::notes::Notes;
use figure::{Figure, Length, row};

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
