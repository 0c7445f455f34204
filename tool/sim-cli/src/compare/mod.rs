//! `remora sim compare`: scenarios of other simulators, beside the completion times that these gave.

mod case;
mod measure;
mod outputs;
mod verdict;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Result, bail};
use remora_options::number::whole;
use remora_scenario::format::change::Change;

use super::INCOMPLETE;
use verdict::{Comparison, Verdict};

/// What is compared.
#[derive(clap::Args)]
#[group(skip)]
#[command(
    after_help = "Examples:\n  remora sim compare peers\n  remora sim compare peers --only permutation --jobs 2 --out compared\n  remora sim compare peers --only load --set switch.mmu=clean\n\nThe folder has the files that docs/reference/simulator.md names. Exit status 3: a row is outside its bound."
)]
pub struct Args {
    /// Folder with scenarios of csg-htsim and conweave-ns3 and the times that they gave
    folder: PathBuf,

    /// Only comparisons whose name contains this: alone, incast, permutation or load
    #[arg(long, value_name = "NAME")]
    only: Option<String>,

    /// Set a key of each scenario: shows what a difference between the programs comes to
    #[arg(long, value_name = "KEY=VALUE", value_parser = |text: &str| text.parse::<Change>())]
    set: Vec<Change>,

    /// Runs at the same time; without it, as many as there are cores
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1..=1024))]
    jobs: Option<usize>,

    /// Folder for the rows and the flows as CSV, and for a plot
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

/// Runs what the folder has. Exits with 3 if a row is outside its bound.
pub fn run(args: &Args) -> Result<()> {
    let only = args.only.as_deref().unwrap_or_default();
    let mut comparisons = case::find(&args.folder, &args.set)?;
    comparisons.retain(|comparison| comparison.name().contains(only));
    if comparisons.is_empty() {
        bail!("no comparison of the folder is called {only}: run without --only to see them all");
    }
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let measured = measure::all(&comparisons, args.jobs.unwrap_or(cores))?;
    let compared: Vec<Comparison> = comparisons
        .into_iter()
        .zip(measured)
        .map(|(asked, runs)| Comparison::new(asked, runs))
        .collect::<Result<_>>()?;
    let verdicts: Vec<Verdict> = compared.iter().flat_map(Comparison::verdicts).collect();
    outputs::print(&compared, &verdicts, args.json);
    if let Some(folder) = &args.out {
        outputs::write(folder, &compared, &verdicts)?;
    }
    if !verdicts.iter().all(Verdict::holds) {
        std::process::exit(INCOMPLETE);
    }
    Ok(())
}
