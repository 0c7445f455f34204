//! `remora sim convert` and `remora sim check`: write a scenario as TOML, and check it.

use std::io::Write as _;

use anyhow::Result;
use remora_scenario::format::own;
use remora_scenario::run::Run;

use crate::load;
use crate::scenario_args::ScenarioArgs;

/// Arguments of `remora sim convert` and `remora sim check`.
#[derive(clap::Args)]
#[group(skip)]
#[command(
    after_help = "Examples:\n  remora sim convert config.txt > scenario.toml\n  remora sim check scenario.toml"
)]
pub(crate) struct Args {
    #[command(flatten)]
    scenario: ScenarioArgs,
}

/// Writes the scenario as TOML to standard output, and warnings about its files to standard error.
pub(crate) fn convert(args: &Args) -> Result<()> {
    let loaded = load::load(&args.scenario)?;
    loaded.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    let text = own::to_toml(&loaded.scenario).map_err(anyhow::Error::msg)?;
    // A reader that closes the pipe early is not an error.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

/// Creates everything that a run needs, and then prints the size of the scenario.
pub(crate) fn check(args: &Args) -> Result<()> {
    let loaded = load::load(&args.scenario)?;
    loaded.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    let run = Run::new(&loaded.scenario).map_err(anyhow::Error::msg)?;
    let network = run.simulation().network();
    let flows = run.progress().flows.1;
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
