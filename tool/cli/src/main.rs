//! The `remora` command: what a verbs program needs. It starts the programs that hold the other commands.

#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, reason = "a closed pipe ends the program quietly: `print`")
)]

mod broker;
mod capture;
mod chain;
mod completions;
mod devinfo;
mod doctor;
mod man;
mod metrics;
mod nic;
mod nicd;
mod replay;
mod run;
mod top;
mod unreplaced;

use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory as _, Parser, Subcommand};
use remora_options::commands::Program;
use remora_options::{program, tree};

/// A programmable remote-memory NIC in software: RoCE v2 on any Linux machine.
#[derive(Parser)]
#[command(name = "remora", version, propagate_version = true)]
#[command(
    after_help = "Examples:\n  remora demo\n  remora doctor\n  remora serve kv --design farm --records 1000000 &\n  remora kv get user42\n  remora bench verbs --port udp --json\n\nLog more with RUST_LOG=debug."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Assemble, verify, run and trace programs of RDMA chains.
    #[command(
        subcommand,
        after_help = "Examples:\n  remora chain run if.chain\n  remora chain trace if.chain --format html > if.html"
    )]
    Chain(chain::ChainCommand),
    /// Run an unmodified verbs program on Remora.
    Run(run::Args),
    /// Share one address between the programs of this host.
    Broker(broker::Args),
    /// Keep a NIC in a daemon and lend it to programs, as `serve nic`.
    Nicd(Box<nicd::AliasArgs>),
    /// List and end what programs keep on the NIC of a daemon.
    #[command(
        subcommand,
        after_help = "Examples:\n  remora nic tenants --socket /run/nic.sock\n  remora nic end store --socket /run/nic.sock"
    )]
    Nic(nic::Manage),
    /// Servers. Examples in the help name the servers of `remora-store`, too, which this program starts.
    #[command(subcommand, allow_external_subcommands = true)]
    Serve(Serve),
    /// Print the attributes of the device.
    Devinfo(devinfo::Args),
    /// Check what this machine can run, and how to repair the rest.
    Doctor(doctor::Args),
    /// Run a command and record what its NICs send and receive.
    Capture(capture::Args),
    /// Replay the recording of a NIC and print the first difference.
    Replay(replay::Args),
    /// Watch the counters of a running server.
    Top(top::Args),
    /// Print a script that completes the commands in a shell.
    Completions(completions::Args),
    /// Write the manual pages of all commands.
    Man(man::Args),
}

/// Servers that this program holds.
#[derive(Subcommand)]
enum Serve {
    /// Keep a NIC in a daemon and lend it to programs, which may restart.
    Nic(Box<nicd::Args>),
}

fn main() -> ExitCode {
    program::start(Program::Remora, |_| None, |cli: Cli| run(cli.command))
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Chain(command) => chain::run(command),
        Command::Run(args) => run::run(&args),
        Command::Broker(args) => broker::run(&args),
        Command::Nicd(args) => args.run(),
        Command::Serve(Serve::Nic(args)) => nicd::run(&args),
        Command::Nic(command) => nic::run(&command),
        Command::Devinfo(args) => devinfo::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Capture(args) => capture::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Completions(args) => completions::run(&args, &mut tree::all(&Cli::command())?),
        Command::Man(args) => man::run(&args, tree::all(&Cli::command())?),
    }
}

#[cfg(test)]
mod tests {
    use remora_options::commands::complete;
    use remora_options::examples::{check_examples, check_numbers};

    use super::*;

    #[test]
    fn every_example_of_the_help_is_understood() {
        assert!(check_examples(&complete(Cli::command())) > 10);
    }

    #[test]
    fn a_number_is_refused_with_the_numbers_that_are_allowed() {
        assert!(check_numbers(&Cli::command()) > 10);
    }
}
