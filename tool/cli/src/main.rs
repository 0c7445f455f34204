//! The `remora` command: run it, serve with it, measure it, watch it.

#![cfg_attr(not(test), deny(clippy::print_stdout, reason = "a reader that leaves is no fault: `print`"))]

mod advice;
mod block;
mod broker;
mod cache;
mod capture;
mod chain;
mod completions;
mod devinfo;
mod doctor;
#[cfg(test)]
mod documented;
mod escape;
mod kv;
mod lines;
mod logs;
mod man;
mod metrics;
mod nicd;
mod rma;
mod run;
mod sim;
mod top;
mod txn;
mod unreplaced;

use std::process::ExitCode;

use anyhow::Result;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use remora_bench::{self as bench, demo, figures};

/// A programmable remote-memory NIC in software: RoCE v2 on any Linux machine.
#[derive(Parser)]
#[command(name = "remora", version, about, propagate_version = true)]
#[command(
    after_help = "Examples:\n  remora demo\n  remora doctor\n  remora serve kv --design farm --records 1000000 &\n  remora kv get user42\n  remora bench verbs --port udp --json\n\nLog more with RUST_LOG=debug."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The main job: one table, read every way, over every port.
    Demo(demo::Args),
    /// Serve a store.
    #[command(
        subcommand,
        after_help = "Examples:\n  remora serve kv --file words.txt\n  remora serve cache --memory 1g\n  remora serve block --replica 0 --servers 127.0.0.1:7481,127.0.0.1:7482,127.0.0.1:7483 --new\n  remora serve txn --shard 0 --shards 2"
    )]
    Serve(Serve),
    /// Use a key-value store.
    #[command(
        subcommand,
        after_help = "Examples:\n  remora serve kv &\n  remora kv put colour blue\n  remora kv get colour"
    )]
    Kv(kv::command::KvCommand),
    /// Use a cache by the chains of its NIC.
    #[command(
        subcommand,
        after_help = "Examples:\n  remora serve cache --chains 127.0.0.1:11212 &\n  remora cache get colour"
    )]
    Cache(cache::client::CacheCommand),
    /// Use a store of replicated blocks.
    #[command(
        subcommand,
        after_help = "Examples:\n  remora block write 7 hello --servers 127.0.0.1:7481,127.0.0.1:7482,127.0.0.1:7483\n  remora block read 7 --members replicas.toml"
    )]
    Block(block::command::BlockCommand),
    /// Use transactions over the keys of several shards.
    #[command(
        subcommand,
        after_help = "Examples:\n  remora txn put alice 100 bob 100 --shards 127.0.0.1:7491,127.0.0.1:7492\n  remora txn add alice -5 bob 5 --shards 127.0.0.1:7491,127.0.0.1:7492\n  remora txn shell --members shards.toml"
    )]
    Txn(txn::command::TxnCommand),
    /// Programs of chains: work requests that wait for, enable and rewrite each other.
    #[command(
        subcommand,
        after_help = "Examples:\n  remora chain run if.chain\n  remora chain trace if.chain --format html > if.html"
    )]
    Chain(chain::ChainCommand),
    /// Memory that others read and write by 1RMA: encrypted, and without connections.
    #[command(
        subcommand,
        after_help = "Examples:\n  remora rma serve --credentials server.json --rights read,write &\n  echo hello | remora rma write --credentials server.json\n  remora rma read --credentials server.json --len 5"
    )]
    Rma(rma::RmaCommand),
    /// Run an unmodified verbs program on Remora.
    Run(run::Args),
    /// Share an address between the programs of this host, each with its own QP numbers.
    Broker(broker::Args),
    /// Own a NIC and its memory, and lend both to programs, which it outlives.
    Nicd(nicd::Args),
    /// Tell what the device is.
    Devinfo(devinfo::Args),
    /// Measure it against what the machine itself can do, in the same run.
    Bench(bench::Args),
    /// Run a scenario on a simulated data center with the real NIC at every host.
    Sim(sim::Args),
    /// Draw what the papers draw, from this software.
    Figures(figures::Args),
    /// Tell what this machine can run, and how to mend what it cannot.
    Doctor(doctor::Args),
    /// Run a command and record what its NICs send and receive.
    Capture(capture::Args),
    /// Watch the counters of a running server.
    Top(top::Args),
    /// Print a script that completes this command's words in a shell.
    Completions(completions::Args),
    /// Write the manual pages of this command and of all below it.
    Man(man::Args),
    /// The other process of a benchmark.
    #[command(name = "__peer", hide = true)]
    Peer(bench::peer::Args),
    /// The chains of the demo.
    #[command(name = "__chains", hide = true)]
    Chains(demo::redn::server::Args),
    /// The replicas of a benchmark.
    #[command(name = "__replicas", hide = true)]
    Replicas(remora_bench::block::together::Args),
}

/// What to serve.
#[derive(Subcommand)]
enum Serve {
    /// A key-value table, in one of the classical designs.
    Kv(kv::serve::ServeArgs),
    /// A cache behind memcached's text protocol, for clients that have no Remora.
    Cache(cache::serve::CacheArgs),
    /// A replica of a store of blocks.
    Block(block::serve::ServeArgs),
    /// A shard of a store with transactions.
    Txn(txn::serve::ServeArgs),
}

fn main() -> ExitCode {
    logs::begin();
    take_descriptors();
    survive_file_limit();
    match run(parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line with its causes, whatever RUST_BACKTRACE says: who reads it made a mistake, not a
            // program.
            // Some causes are texts of other processes.
            let text = format!("{error:#}");
            let lines: Vec<String> = text.lines().map(remora_options::print::shown).collect();
            eprintln!("error: {}", lines.join("\n"));
            ExitCode::FAILURE
        }
    }
}

/// Each connection is a descriptor or more: the soft limit, 1024 on most systems, goes up to the hard one.
fn take_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Where that is refused the old one stays, and is named when it is reached.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Makes a write beyond `ulimit -f` fail with EFBIG, which is reported; SIGXFSZ would end the process
/// silently. A handler does that instead of SIG_IGN, which programs started by this command would inherit.
fn survive_file_limit() {
    let seen = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    // Where that is refused the signal ends the process, as it did.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, seen);
}

/// The command line. A benchmark's options are looked at once more: each of those that some of them have.
fn parse() -> Cli {
    let matches = Cli::command().get_matches();
    let own = matches.subcommand().filter(|(name, _)| *name == "bench");
    let unheeded = own.and_then(|(_, matches)| bench::options::unheeded(matches));
    if let Some(words) = unheeded {
        Cli::command().error(ErrorKind::ArgumentConflict, words).exit();
    }
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Demo(args) => demo::run(&args),
        Command::Serve(Serve::Kv(args)) => kv::serve::run(&args),
        Command::Serve(Serve::Cache(args)) => cache::serve::run(&args),
        Command::Serve(Serve::Block(args)) => block::serve::run(&args),
        Command::Serve(Serve::Txn(args)) => txn::serve::run(&args),
        Command::Txn(command) => txn::command::run(command),
        Command::Block(command) => block::command::run(command),
        Command::Kv(command) => kv::command::run(command),
        Command::Cache(command) => cache::client::run(command),
        Command::Chain(command) => chain::run(command),
        Command::Rma(command) => rma::run(command),
        Command::Run(args) => run::run(&args),
        Command::Broker(args) => broker::run(&args),
        Command::Nicd(args) => nicd::run(&args),
        Command::Devinfo(args) => devinfo::run(&args),
        Command::Bench(args) => bench::run(args),
        Command::Sim(args) => sim::run(args),
        Command::Figures(args) => figures::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Capture(args) => capture::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Completions(args) => completions::run(&args, &mut Cli::command()),
        Command::Man(args) => man::run(&args, Cli::command()),
        Command::Peer(args) => bench::peer::run(args),
        Command::Chains(args) => demo::redn::server::run(&args),
        Command::Replicas(args) => remora_bench::block::together::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the help of a command, and of all below it, shows as a call.
    fn examples(command: &clap::Command) -> Vec<String> {
        let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let calls = text.lines().map(|line| line.trim().trim_start_matches("sudo "));
        let own = calls.filter(|line| line.starts_with("remora ")).map(str::to_owned);
        own.chain(command.get_subcommands().flat_map(examples)).collect()
    }

    /// Calls of a command, and of all below it, that give a word to each of its arguments in turn.
    fn calls(command: &clap::Command, path: &[String], word: &str) -> Vec<Vec<String>> {
        let path = [path, &[command.get_name().to_owned()]].concat();
        let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
        let taking = arguments.filter(|argument| argument.get_action().takes_values());
        let own = taking.map(|argument| {
            let option = argument.get_long().map(|long| format!("--{long}"));
            path.iter().cloned().chain(option).chain([word.to_owned()]).collect()
        });
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        own.chain(shown.flat_map(|command| calls(command, &path, word))).collect()
    }

    #[test]
    fn no_number_is_refused_in_the_words_of_rust() {
        let all = calls(&Cli::command(), &[], "minusone");
        let refused =
            all.iter().filter_map(|call| Cli::try_parse_from(call).err().map(|error| (call, error)));
        let texts: Vec<(&Vec<String>, String)> =
            refused.map(|(call, error)| (call, error.to_string())).collect();
        let numbers = texts.iter().filter(|(_, text)| text.contains("give a whole number")).count();
        assert!(numbers > 60, "{numbers} of {} calls have a number", all.len());
        for (call, text) in texts {
            let rusts =
                ["invalid digit", "invalid float", " is not in "].iter().any(|words| text.contains(words));
            assert!(!rusts, "{call:?}: {text}");
        }
    }

    #[test]
    fn every_example_of_the_help_is_understood() {
        let all = examples(&Cli::command());
        assert!(all.len() > 20, "{all:?}");
        for example in all {
            // What the shell takes for itself.
            let call = example.split(['<', '>', '&', '|']).next().unwrap_or_default();
            let error = Cli::try_parse_from(call.split_whitespace()).err();
            assert!(error.is_none(), "{example}: {}", error.expect("one"));
        }
    }
}
