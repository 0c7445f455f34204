//! `remora-sim`: simulates a data center with the real NIC at every host (`remora sim`).

#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, reason = "a closed pipe ends the program quietly: `print`")
)]

mod capture;
mod charts;
mod compare;
mod convert;
mod load;
mod outputs;
mod plot;
mod progress;
mod recorded;
mod run;
mod saved;
mod scenario_args;
mod summary;
mod sweep;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use remora_options::commands::Program;
use remora_options::program;

/// A programmable remote-memory NIC in software: RoCE v2 on any Linux machine.
#[derive(Parser)]
#[command(name = "remora", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Simulate a data center with the real NIC at every host.
    Sim(Args),
}

/// Arguments of `remora sim`: a scenario to run, or a subcommand.
#[derive(clap::Args)]
#[group(skip)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  remora sim examples/irn.toml\n  remora sim examples/irn.toml --transport roce+pfc --seed 2 --out roce --json\n  remora sim examples/incast-pfc.toml --capture 130:1\n  remora sim config.txt --control dcqcn\n  remora sim permutation.cm -- -nodes 128 -mtu 1000 -q 10000\n  remora sim examples/irn.toml --set workload.0.traffic.load=0.9 --set network.rate=100Gbps\n  remora sim check scenario.toml\n\nA scenario is a TOML file of Remora, a configuration of HPCC's or ConWeave's ns-3 program, or a connection matrix\n(.cm) of htsim, whose options follow after `--`. Exit status 3: flows did not finish, or a watcher found something."
)]
struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    run: run::Args,
}

#[derive(Subcommand)]
enum Verb {
    /// Write a scenario of any supported format as a TOML file of Remora.
    Convert(convert::Args),
    /// Check whether a scenario can run, and print its size.
    Check(convert::Args),
    /// Run scenarios of other simulators and compare the flow completion times.
    Compare(compare::Args),
    /// Run a scenario with all combinations of given values of some keys.
    Sweep(sweep::Args),
    /// Draw the results of runs or of a sweep.
    Plot(plot::Args),
}

fn main() -> ExitCode {
    program::start(Program::Sim, |_| None, |Cli { command: Command::Sim(args) }| run(args))
}

/// Runs `remora sim`.
fn run(args: Args) -> Result<()> {
    match args.verb {
        None => run::run(&args.run),
        Some(Verb::Convert(args)) => convert::convert(&args),
        Some(Verb::Check(args)) => convert::check(&args),
        Some(Verb::Compare(args)) => compare::run(&args),
        Some(Verb::Sweep(args)) => sweep::run(&args),
        Some(Verb::Plot(args)) => plot::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use remora_options::examples::{check_examples, check_numbers};

    use super::*;

    #[test]
    fn every_example_of_the_help_is_understood() {
        assert!(check_examples(&Cli::command()) > 5);
    }

    #[test]
    fn a_number_is_refused_with_the_numbers_that_are_allowed() {
        assert!(check_numbers(&Cli::command()) > 1);
    }
}
