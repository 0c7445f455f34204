//! `remora sim sweep`: runs a scenario with all combinations of given values of some keys, each as a run of
//! its own.

mod jobs;
mod plan;
mod table;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use remora_options::number::whole;
use remora_options::output::REPORT;
use remora_options::print;

use crate::scenario_args::INCOMPLETE;
use plan::Plan;
pub(crate) use table::NAME as TABLE;

/// Arguments of `remora sim sweep`.
#[derive(clap::Args)]
#[group(skip)]
#[command(
    after_help = "Examples:\n  remora sim sweep examples/load.toml --jobs 2\n  remora sim sweep examples/load.toml --list | parallel -j 4\n  remora sim sweep examples/load.toml --list | xargs -d '\\n' -P 4 -I{} sh -c '{}'\n  remora sim sweep examples/load.toml && remora sim plot report/latest/load\n\nA run is done when its folder has a summary.json, which is written last; done runs are skipped. Exit status 3: a run\nhas unfinished flows or findings, or the sweep was stopped."
)]
pub(crate) struct Args {
    /// TOML file with a base scenario and axes
    file: PathBuf,

    /// Folder for sweep.csv and the folders of the runs [default: a folder in report/latest with the file's
    /// name]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print the commands of the unfinished runs, one per line, without running them
    #[arg(long)]
    list: bool,

    /// Number of runs at the same time [default: the number of cores]
    #[arg(long, value_name = "N", conflicts_with = "list", value_parser = whole::<usize>(1..=1024))]
    jobs: Option<usize>,
}

/// Runs the unfinished scenarios and writes the table. Exits with status 3 if a run is incomplete.
pub(crate) fn run(args: &Args) -> Result<()> {
    let stem = args.file.file_stem().context("the sweep has no file name: give a TOML file")?;
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
