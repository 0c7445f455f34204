//! `remora sim convert` and `check`: what a scenario is.

use std::io::Write as _;

use anyhow::Result;
use remora_scenario::format::own;
use remora_scenario::run::Run;

use super::{ScenarioArgs, load};

/// Which scenario.
#[derive(clap::Args)]
#[group(skip)]
#[command(
    after_help = "Examples:\n  remora sim convert config.txt > scenario.toml\n  remora sim check scenario.toml"
)]
pub struct Args {
    #[command(flatten)]
    scenario: ScenarioArgs,
}

/// Writes the scenario as TOML to standard output. What is odd about its files goes to standard error.
pub fn convert(args: &Args) -> Result<()> {
    let loaded = load::load(&args.scenario)?;
    loaded.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    let text = own::to_toml(&loaded.scenario).map_err(anyhow::Error::msg)?;
    // A reader that leaves is no fault.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

/// Says what the scenario is, after everything was made that its run needs.
pub fn check(args: &Args) -> Result<()> {
    let loaded = load::load(&args.scenario)?;
    loaded.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    let run = Run::new(&loaded.scenario).map_err(anyhow::Error::msg)?;
    let (network, flows) = (run.simulation().network(), run.progress().flows.1);
    let switches = network.topology().switches().count();
    let scenario = &loaded.scenario;
    let _ = writeln!(
        std::io::stdout(),
        "{} hosts, {switches} switches, {} links; {flows} flows; {} with control {}",
        network.hosts(),
        network.topology().links.len(),
        scenario.transport.name,
        scenario.control.name,
    );
    Ok(())
}
