//! `remora block`: the client commands of the block store.

use std::io::Read;

use anyhow::{Context as _, Result};
use clap::Subcommand;

use super::shell;
use super::target::Target;
use super::value::{padded, shown};
use remora_options::number::natural;
use remora_options::print;
use remora_service::block::Session;

/// Subcommands of `remora block`.
#[derive(Subcommand)]
pub(crate) enum BlockCommand {
    /// Print a block without the zeros at its end.
    #[command(
        after_help = "Examples:\n  remora block read 7 --servers 127.0.0.1:7481,127.0.0.1:7482,127.0.0.1:7483\n  remora block read 7 --whole --members replicas.toml > seven"
    )]
    Read {
        #[command(flatten)]
        target: Target,
        /// Number of the block, counted from 0.
        #[arg(value_parser = natural::<u64>)]
        block: u64,
        /// Print the whole block, including the zeros at its end.
        #[arg(long)]
        whole: bool,
    },
    /// Execute the commands on standard input over one connection: `read BLOCK` and `write BLOCK VALUE`.
    /// Each command is answered by one line.
    #[command(after_help = "Examples:\n  remora block shell --members replicas.toml < orders")]
    Shell {
        #[command(flatten)]
        target: Target,
    },
    /// Write a value to a block and fill the rest with zeros.
    #[command(
        after_help = "Examples:\n  remora block write 7 hello --servers 127.0.0.1:7481,127.0.0.1:7482,127.0.0.1:7483\n  remora block write 7 - --members etcd://127.0.0.1:2379/replicas < seven"
    )]
    Write {
        #[command(flatten)]
        target: Target,
        /// Number of the block, counted from 0.
        #[arg(value_parser = natural::<u64>)]
        block: u64,
        /// Value to write; - reads it from standard input.
        value: String,
    },
}

/// Runs a subcommand of `remora block`.
pub(crate) fn run(command: BlockCommand) -> Result<()> {
    match command {
        BlockCommand::Read { target, block, whole } => read(&target, block, whole),
        BlockCommand::Shell { target } => shell::run(session(&target, true)?),
        BlockCommand::Write { target, block, value } => write(&target, block, value),
    }
}

fn session(target: &Target, writes: bool) -> Result<Session> {
    Ok(Session::open(target.port.open()?, target.servers.find()?, 1, writes)?)
}

fn read(target: &Target, block: u64, whole: bool) -> Result<()> {
    let mut session = session(target, false)?;
    let value = session.read(block)?;
    let shown = if whole { &value[..] } else { shown(&value) };
    print::bytes(shown);
    if !whole && !shown.ends_with(b"\n") {
        print::line("");
    }
    Ok(session.close()?)
}

fn write(target: &Target, block: u64, value: String) -> Result<()> {
    let value = if value == "-" {
        let mut bytes = Vec::new();
        let most = u64::from(remora_store::block::MAX_BLOCK) + 1;
        std::io::stdin().take(most).read_to_end(&mut bytes).context("reading standard input")?;
        bytes
    } else {
        value.into_bytes()
    };
    let mut session = session(target, true)?;
    let value = padded(value, session.layout()?.block_len)?;
    session.write(block, &value)?;
    Ok(session.close()?)
}
