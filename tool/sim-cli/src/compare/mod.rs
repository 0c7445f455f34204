//! `remora sim compare`: runs scenarios of other simulators and compares the completion times.

mod case;
mod measure;
mod outputs;
mod verdict;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Result, bail};
use remora_options::number::whole;
use remora_scenario::format::change::Change;

use crate::scenario_args::INCOMPLETE;
use verdict::{Comparison, Verdict};

/// Arguments of `remora sim compare`.
#[derive(clap::Args)]
#[group(skip)]
#[command(
    after_help = "Examples:\n  remora sim compare peers\n  remora sim compare peers --only permutation --jobs 2 --out compared\n  remora sim compare peers --only load --set switch.mmu=clean\n\nThe folder has the files that docs/reference/simulator.md names. Exit status 3: a row is outside its bound."
)]
pub(crate) struct Args {
    /// Folder with scenarios of csg-htsim and conweave-ns3 and their results
    folder: PathBuf,

    /// Run only comparisons with this text in their name: alone, incast, permutation or load [default: all]
    #[arg(long, value_name = "NAME")]
    only: Option<String>,

    /// Set a key of each scenario, to measure the effect of a difference between the simulators; may be
    /// given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = |text: &str| text.parse::<Change>())]
    set: Vec<Change>,

    /// Number of runs at the same time [default: the number of cores]
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1..=1024))]
    jobs: Option<usize>,

    /// Folder for the rows and flows as CSV and for a plot [default: no files]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// Runs all comparisons in the folder. Exits with status 3 if a result is outside its bound.
pub(crate) fn run(args: &Args) -> Result<()> {
    let only = args.only.as_deref().unwrap_or_default();
    let mut comparisons = case::find(&args.folder, &args.set)?;
    comparisons.retain(|comparison| comparison.name().contains(only));
    if comparisons.is_empty() {
        bail!("the folder has no comparison named {only}: run without --only to see all of them");
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
