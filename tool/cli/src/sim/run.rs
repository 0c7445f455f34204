//! The run itself: progress, outputs that grow, an end.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use remora_bench::command::ending;
use remora_scenario::run::Run;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::outputs::Outputs;
use super::progress::Display;
use super::summary::Summary;
use super::{INCOMPLETE, ScenarioArgs, load};

/// Picoseconds of simulated time between two looks at the clock and at signals.
const STEP: u64 = 20_000_000;

/// What to run, and where its results go.
#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    #[command(flatten)]
    scenario: ScenarioArgs,

    /// Simulated time at which the run ends at the latest, such as 10ms
    #[arg(long, value_name = "TIME", value_parser = |text: &str| text.parse::<remora_scenario::units::Time>())]
    until: Option<remora_scenario::units::Time>,

    /// Folder for the outputs: a line for each flow as it ends, and a summary
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// One JSON object a line: progress, flows as they end, and the summary
    #[arg(long)]
    json: bool,

    /// End when the process ends that started this one
    #[arg(long, hide = true)]
    end_with_parent: bool,
}

/// Runs the scenario. Exits with 3 if flows did not finish or something was found.
pub fn run(args: &Args) -> Result<()> {
    if args.end_with_parent {
        ending::end_with_parent()?;
    }
    let loaded = load::load(&args.scenario)?;
    loaded.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    let mut scenario = loaded.scenario;
    if args.until.is_some() {
        scenario.until = args.until;
    }
    for says in remora_scenario::setup::unheeded(&scenario) {
        eprintln!("warning: {says}");
    }
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stopped)).context("waiting for signals")?;
    }
    let mut run = Run::new(&scenario).map_err(anyhow::Error::msg)?;
    let mut outputs = Outputs::create(args.out.as_deref(), &scenario, args.json)?;
    let mut display = Display::new(args.json, run.progress().flows.1)?;
    let mut summary = Summary::default();
    while !run.is_over() && !stopped.load(Ordering::Relaxed) {
        let limit = run.progress().now.after(STEP);
        while let Some(row) = run.advance(limit) {
            outputs.flow(&row)?;
            summary.add(&row);
        }
        display.show(&run.progress(), &summary)?;
    }
    display.end();
    let complete = summary.close(&mut run, stopped.load(Ordering::Relaxed));
    outputs.end(&run, &summary)?;
    summary.print(&run, args.json, display.elapsed())?;
    if !complete {
        std::process::exit(INCOMPLETE);
    }
    Ok(())
}
