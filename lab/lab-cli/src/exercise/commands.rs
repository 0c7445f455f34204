//! The commands `remora kv exercise`, `remora block exercise`, `remora txn exercise` and `remora cache
//! exercise`.

use anyhow::{Result, ensure};
use clap::Subcommand;
use remora_options::number::whole;
use remora_service::with_design;
use remora_store_cli::block::target::Target as BlockTarget;
use remora_store_cli::kv::target::Target as KvTarget;
use remora_store_cli::transport::TransportName;
use remora_store_cli::txn::MAX_KEYS;
use remora_store_cli::txn::target::Target as TxnTarget;

use super::cache::CacheExerciseArgs;
use super::kv::run as record;
use super::{ExerciseArgs, block, cache, txn};

/// Subcommands of `remora kv` that this program holds.
#[derive(Subcommand)]
pub(crate) enum KvCommand {
    /// Run random operations and record them for a linearizability checker.
    #[command(
        after_help = "Examples:\n  remora kv exercise --history one.jsonl\n  remora kv exercise --design prism --number 1 --keys 16 --seconds 60 --history two.jsonl\n\nWhat several processes recorded on one machine is one history, whatever became of them: docs/guides/key-value.md says how to judge it."
    )]
    Exercise {
        #[command(flatten)]
        target: KvTarget,
        #[command(flatten)]
        exercise: ExerciseArgs,
        /// Maximum length of a value in bytes.
        #[arg(long, default_value_t = 6000, value_parser = whole::<u32>(8..=1048576))]
        value_len: u32,
    },
}

/// Subcommands of `remora block` that this program holds.
#[derive(Subcommand)]
pub(crate) enum BlockCommand {
    /// Run random operations and record them for a linearizability checker.
    #[command(
        after_help = "Examples:\n  remora block exercise --history one.jsonl --servers 127.0.0.1:7481,127.0.0.1:7482,127.0.0.1:7483\n  remora block exercise --history two.jsonl --number 1 --keys 16 --seconds 60 --members replicas.toml\n\nWhat several processes recorded on one machine is one history, whatever became of them: docs/guides/blocks.md says how to judge it."
    )]
    Exercise {
        #[command(flatten)]
        target: BlockTarget,
        #[command(flatten)]
        exercise: ExerciseArgs,
    },
}

/// Subcommands of `remora txn` that this program holds.
#[derive(Subcommand)]
pub(crate) enum TxnCommand {
    /// Run random transactions and record them for a serializability checker.
    #[command(
        after_help = "Examples:\n  remora txn exercise --history one.jsonl --shards 127.0.0.1:7491,127.0.0.1:7492\n  remora txn exercise --history two.jsonl --number 1 --rate 60 --seconds 60 --members shards.toml\n\nWhat several processes recorded on one machine is one history, whatever became of them: docs/guides/key-value.md says how to judge it."
    )]
    Exercise {
        #[command(flatten)]
        target: TxnTarget,
        #[command(flatten)]
        exercise: ExerciseArgs,
    },
}

/// Subcommands of `remora cache` that this program holds.
#[derive(Subcommand)]
pub(crate) enum CacheCommand {
    /// Run random operations and record them for a linearizability checker.
    Exercise(CacheExerciseArgs),
}

/// Runs `remora kv exercise`.
pub(crate) fn run_kv(command: KvCommand) -> Result<()> {
    let KvCommand::Exercise { target, exercise, value_len } = command;
    ensure!(
        target.transport == TransportName::Rc,
        "kv exercise supports only --transport rc: leave --transport out, or use kv bench"
    );
    with_design!(target.design, record(&target, &exercise, value_len))
}

/// Runs `remora block exercise`.
pub(crate) fn run_block(command: &BlockCommand) -> Result<()> {
    let BlockCommand::Exercise { target, exercise } = command;
    block::run(target, exercise)
}

/// Runs `remora txn exercise`.
pub(crate) fn run_txn(command: &TxnCommand) -> Result<()> {
    let TxnCommand::Exercise { target, exercise } = command;
    txn::run(target, exercise, MAX_KEYS)
}

/// Runs `remora cache exercise`.
pub(crate) fn run_cache(command: &CacheCommand) -> Result<()> {
    let CacheCommand::Exercise(args) = command;
    cache::run(args)
}
