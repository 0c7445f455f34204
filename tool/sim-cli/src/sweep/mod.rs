//! `remora sim sweep`: one scenario with all combinations of some of its keys' values, each a run of its own.

mod jobs;
mod plan;
mod table;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use remora_options::number::whole;
use remora_options::output::REPORT;
use remora_options::print;

use super::INCOMPLETE;
use plan::Plan;
pub use table::NAME as TABLE;

/// Which sweep.
#[derive(clap::Args)]
#[group(skip)]
#[command(
    after_help = "Examples:\n  remora sim sweep examples/load.toml --jobs 2\n  remora sim sweep examples/load.toml --list | parallel -j 4\n  remora sim sweep examples/load.toml --list | xargs -d '\\n' -P 4 -I{} sh -c '{}'\n  remora sim sweep examples/load.toml && remora sim plot report/latest/load\n\nA run is done when its folder has a summary.json, which is written last; done runs are skipped. Exit status 3: a run\nhas unfinished flows or findings, or the sweep was stopped."
)]
pub struct Args {
    /// A TOML file with a base scenario and axes
    file: PathBuf,

    /// Folder for the runs' folders and sweep.csv; without it, one with the file's name in report/latest
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print the commands of the runs that are not done, one a line, and run none
    #[arg(long)]
    list: bool,

    /// Runs at the same time; without it, as many as there are cores
    #[arg(long, value_name = "N", conflicts_with = "list", value_parser = whole::<usize>(1..=1024))]
    jobs: Option<usize>,
}

/// Runs what is not done, and writes the table. Exits with 3 if a run is not complete.
pub fn run(args: &Args) -> Result<()> {
    let stem = args.file.file_stem().context("the sweep is a file: name it")?;
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from(REPORT).join(stem));
    let plan = Plan::read(&args.file, &out)?;
    if args.list {
        let program = std::env::args().next().unwrap_or_else(|| "remora".to_owned());
        plan.left().for_each(|run| print::line(run.command(&program, &plan.base)));
        return Ok(());
    }
    plan.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let ended = jobs::run(&plan, args.jobs.unwrap_or(cores))?;
    let table = table::write(&plan, &out)?;
    print::line(format!("{} of {} runs are done: {}", plan.done().count(), plan.runs.len(), table.display()));
    if let Some(error) = ended.error {
        return Err(error);
    }
    let complete = plan.done().all(|run| run.summary().is_some_and(|summary| summary.is_complete()));
    if ended.stopped || !complete {
        std::process::exit(INCOMPLETE);
    }
    Ok(())
}
