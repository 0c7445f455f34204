//! `remora-lab`: benchmarks, the papers' figures, and random operations recorded for checkers.

#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, reason = "a closed pipe ends the program quietly: `print`")
)]

mod exercise;

use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgMatches, Parser, Subcommand};
use exercise::commands::{
    BlockCommand, CacheCommand, KvCommand, TxnCommand, run_block, run_cache, run_kv, run_txn,
};
use remora_bench::{self as bench, figures};
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
    /// Measure operations and stores beside the limits of this machine.
    Bench(bench::Args),
    /// Reproduce the figures of the papers.
    Figures(figures::Args),
    /// Read and write a key-value table.
    #[command(subcommand)]
    Kv(KvCommand),
    /// Read from a cache by RDMA chains, without the server's CPU.
    #[command(subcommand)]
    Cache(CacheCommand),
    /// Read and write replicated blocks.
    #[command(subcommand)]
    Block(BlockCommand),
    /// Run transactions over the keys of several shards.
    #[command(subcommand)]
    Txn(TxnCommand),
    /// The second process of a benchmark.
    #[command(name = "__peer", hide = true)]
    Peer(bench::peer::Args),
    /// The replica processes of a benchmark.
    #[command(name = "__replicas", hide = true)]
    Replicas(bench::block::together::Args),
}

fn main() -> ExitCode {
    program::start(Program::Lab, refusal, |cli: Cli| run(cli.command))
}

/// Returns an error message if an option of `remora bench` has no effect on the benchmark.
fn refusal(matches: &ArgMatches) -> Option<String> {
    let (_, own) = matches.subcommand().filter(|(name, _)| *name == "bench")?;
    bench::options::unheeded(own)
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Bench(args) => bench::run(args),
        Command::Figures(args) => figures::run(&args),
        Command::Kv(command) => run_kv(command),
        Command::Cache(command) => run_cache(&command),
        Command::Block(command) => run_block(&command),
        Command::Txn(command) => run_txn(&command),
        Command::Peer(args) => bench::peer::run(args),
        Command::Replicas(args) => bench::block::together::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use remora_options::examples::{check_examples, check_numbers};

    use super::*;

    #[test]
    fn every_example_of_the_help_is_understood() {
        assert!(check_examples(&Cli::command()) > 20);
    }

    #[test]
    fn a_number_is_refused_with_the_numbers_that_are_allowed() {
        assert!(check_numbers(&Cli::command()) > 20);
    }
}
