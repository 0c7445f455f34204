//! The arguments of `remora-store`, and its commands.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use remora_options::commands::Program;
use remora_options::program;

use crate::{block, cache, demo, kv, rma, txn};

/// A programmable remote-memory NIC in software: RoCE v2 on any Linux machine.
#[derive(Parser)]
#[command(name = "remora", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure one GET in every design, between two processes.
    Demo(demo::Args),
    /// Serve a table, a cache, replicated blocks or a transaction shard.
    #[command(
        subcommand,
        after_help = "Examples:\n  remora serve kv --file words.txt\n  remora serve cache --memory 1g\n  remora serve block --replica 0 --servers 127.0.0.1:7481,127.0.0.1:7482,127.0.0.1:7483 --new\n  remora serve txn --shard 0 --shards 2"
    )]
    Serve(Serve),
    /// Read and write a key-value table.
    #[command(
        subcommand,
        after_help = "Examples:\n  remora serve kv &\n  remora kv put colour blue\n  remora kv get colour"
    )]
    Kv(kv::command::KvCommand),
    /// Read from a cache by RDMA chains, without the server's CPU.
    #[command(
        subcommand,
        after_help = "Examples:\n  remora serve cache --chains 127.0.0.1:11212 &\n  remora cache get colour"
    )]
    Cache(cache::client::CacheCommand),
    /// Read and write replicated blocks.
    #[command(
        subcommand,
        after_help = "Examples:\n  remora block write 7 hello --servers 127.0.0.1:7481,127.0.0.1:7482,127.0.0.1:7483\n  remora block read 7 --members replicas.toml"
    )]
    Block(block::command::BlockCommand),
    /// Run transactions over the keys of several shards.
    #[command(
        subcommand,
        after_help = "Examples:\n  remora txn put alice 100 bob 100 --shards 127.0.0.1:7491,127.0.0.1:7492\n  remora txn add alice -5 bob 5 --shards 127.0.0.1:7491,127.0.0.1:7492\n  remora txn shell --members shards.toml"
    )]
    Txn(txn::command::TxnCommand),
    /// Read and write another host's memory by 1RMA, encrypted.
    #[command(
        subcommand,
        after_help = "Examples:\n  remora rma serve --credentials server.json --rights read,write &\n  echo hello | remora rma write --credentials server.json\n  remora rma read --credentials server.json --len 5"
    )]
    Rma(rma::RmaCommand),
    /// The chain server of the demo.
    #[command(name = "__chains", hide = true)]
    Chains(demo::redn::server::Args),
}

/// Kinds of servers.
#[derive(Subcommand)]
enum Serve {
    /// Serve a key-value table in the design of a paper: FaRM, Pilaf, PRISM-KV, StRoM or two-sided.
    Kv(kv::serve::ServeArgs),
    /// Serve a cache over memcached's text protocol, for unmodified clients.
    Cache(cache::serve::CacheArgs),
    /// Serve one replica of a block store.
    Block(block::serve::ServeArgs),
    /// Serve one shard of a transactional store.
    Txn(txn::serve::ServeArgs),
}

/// Runs `remora-store` with the arguments of this process.
pub fn start() -> ExitCode {
    program::start(Program::Store, |_| None, |cli: Cli| run(cli.command))
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Demo(args) => demo::run(&args),
        Command::Serve(Serve::Kv(args)) => kv::serve::run(&args),
        Command::Serve(Serve::Cache(args)) => cache::serve::run(&args),
        Command::Serve(Serve::Block(args)) => block::serve::run(&args),
        Command::Serve(Serve::Txn(args)) => txn::serve::run(&args),
        Command::Kv(command) => kv::command::run(command),
        Command::Cache(command) => cache::client::run(command),
        Command::Block(command) => block::command::run(command),
        Command::Txn(command) => txn::command::run(command),
        Command::Rma(command) => rma::run(command),
        Command::Chains(args) => demo::redn::server::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use remora_options::commands::complete;
    use remora_options::examples::{check_examples, check_numbers};

    use super::*;

    #[test]
    fn every_example_of_the_help_is_understood() {
        assert!(check_examples(&complete(Cli::command())) > 20);
    }

    #[test]
    fn a_number_is_refused_with_the_numbers_that_are_allowed() {
        assert!(check_numbers(&Cli::command()) > 30);
    }
}
