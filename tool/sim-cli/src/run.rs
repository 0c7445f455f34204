//! `remora sim SCENARIO`: runs a scenario, shows its progress, and writes its outputs while it runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use remora_options::ending;
use remora_scenario::Scenario;
use remora_scenario::record::{PortName, RecordConfig};
use remora_scenario::run::Run;
use remora_scenario::units::{Size, Time};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::capture::CaptureArg;
use super::outputs::Outputs;
use super::progress::Display;
use super::recorded::Recorded;
use super::summary::Summary;
use crate::load;
use crate::scenario_args::{INCOMPLETE, ScenarioArgs};

/// Simulated time in picoseconds between two checks of the progress display and of signals.
const STEP: u64 = 20_000_000;

/// Options that select a scenario and the places of its results.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    scenario: ScenarioArgs,

    /// Simulated time at which the run ends even if flows are unfinished, for example 10ms [default: the
    /// scenario's]
    #[arg(long, value_name = "TIME", value_parser = |text: &str| text.parse::<Time>())]
    until: Option<Time>,

    /// Folder for the outputs: a line for each completed flow, and a summary [default: no files]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Record the packets that arrive at and leave a port, numbered from 1, in NODE-PORT.pcapng or in FILE;
    /// may be given several times
    #[arg(long, value_name = "NODE:PORT[=FILE]", value_parser = |text: &str| text.parse::<CaptureArg>())]
    capture: Vec<CaptureArg>,

    /// Maximum size of a capture file
    #[arg(long, value_name = "SIZE", default_value = "1GB", value_parser = |text: &str| text.parse::<Size>())]
    capture_limit: Size,

    /// Print JSON objects, one per line: progress, completed flows, and the summary
    #[arg(long)]
    json: bool,

    /// End when the parent process ends
    #[arg(long, hide = true)]
    end_with_parent: bool,
}

/// Runs the scenario. Exits with status 3 if flows did not finish or a watcher found something.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.end_with_parent {
        ending::end_with_parent()?;
    }
    let loaded = load::load(&args.scenario)?;
    loaded.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    let mut scenario = loaded.scenario;
    if args.until.is_some() {
        scenario.until = args.until;
    }
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stopped)).context("installing signal handlers")?;
    }
    let mut run = Run::new(&scenario).map_err(anyhow::Error::msg)?;
    for says in remora_scenario::setup::unheeded(&scenario) {
        eprintln!("warning: {says}");
    }
    let mut outputs = Outputs::create(args.out.as_deref(), &scenario, args.json)?;
    let recorded = record(args, &scenario, &mut run)?;
    let mut display = Display::new(args.json, run.progress().flows.1)?;
    let mut summary = Summary::default();
    while !run.is_over() && !stopped.load(Ordering::Relaxed) {
        let limit = run.progress().now.after(STEP);
        while let Some(row) = run.advance(limit) {
            outputs.flow(&row)?;
            summary.add(&row);
        }
        recorded.flush()?;
        display.show(&run.progress(), &summary)?;
    }
    display.end();
    let complete = summary.close(&mut run, stopped.load(Ordering::Relaxed));
    run.end_recording();
    recorded.end()?;
    outputs.end(&run, &summary)?;
    summary.print(&run, args.json, display.elapsed())?;
    if !complete {
        std::process::exit(INCOMPLETE);
    }
    Ok(())
}

/// Starts the recording of the requested ports and of the scenario's outputs.
fn record(args: &Args, scenario: &Scenario, run: &mut Run) -> Result<Recorded> {
    let captures: Vec<PortName> = args.capture.iter().map(|capture| capture.port).collect();
    for port in &captures {
        port.find(run.simulation().network()).map_err(anyhow::Error::msg)?;
    }
    let recorded = Recorded::create(scenario, args.out.as_deref(), &args.capture, args.capture_limit)?;
    let outputs = recorded.outputs();
    if !(captures.is_empty() && outputs.is_empty()) {
        let asked = RecordConfig { captures: &captures, outputs: &outputs };
        run.record(scenario, &asked, Box::new(recorded.clone())).map_err(anyhow::Error::msg)?;
    }
    Ok(recorded)
}
