//! `remora kv get|put|delete|load|exercise`.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use store::kv::ClientConfig;

use super::client::Session;
use super::exercise::run as record;
use super::load::load;
use super::{Design, DesignName};
use crate::device::PortArgs;
use crate::escape::{KeyWords, shown};
use crate::exercise::ExerciseArgs;
use crate::print;
use crate::with_design;

/// Which server.
#[derive(Args, Clone, Debug)]
pub struct Target {
    /// Where the server listens.
    #[arg(long, default_value = "127.0.0.1:7471")]
    pub connect: String,
    /// Its design.
    #[arg(long, default_value = "farm")]
    pub design: DesignName,
    #[command(flatten)]
    pub port: PortArgs,
}

/// `remora kv`.
#[derive(Subcommand)]
pub enum KvCommand {
    /// Print the value of a key.
    #[command(
        after_help = "Example:\n  remora kv get user42\n  remora kv get --escaped 'two\\swords\\xff'\n\nEnds with status 1 if there is no such key."
    )]
    Get {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        words: KeyWords,
        /// The key.
        key: OsString,
    },
    /// Store a value under a key.
    #[command(after_help = "Examples:\n  remora kv put colour blue\n  remora kv put picture - < picture.png")]
    Put {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        words: KeyWords,
        /// The key.
        key: OsString,
        /// The value; - takes it from standard input.
        value: OsString,
    },
    /// Remove a key.
    #[command(
        after_help = "Example:\n  remora kv delete colour\n\nEnds with status 1 if there is no such key."
    )]
    Delete {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        words: KeyWords,
        /// The key.
        key: OsString,
    },
    /// Store every `key value` line of a file.
    #[command(
        after_help = "Examples:\n  remora kv load words.txt\n  remora kv load - < words.txt\n\nThe key ends at the first space or tab; the rest of the line is the value. Lines that hold no pair, or one that is too long, are\nnamed by their number and left out."
    )]
    Load {
        #[command(flatten)]
        target: Target,
        /// The file; - takes standard input.
        file: PathBuf,
    },
    /// Do random operations, and record them for a judge of linearizability.
    #[command(
        after_help = "Examples:\n  remora kv exercise --history one.jsonl\n  remora kv exercise --design prism --number 1 --keys 16 --seconds 60 --history two.jsonl\n\nWhat several processes recorded on one machine is one history, whatever became of them: docs/KV.md says how to judge it."
    )]
    Exercise {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        exercise: ExerciseArgs,
        /// Bytes of a value at most.
        #[arg(long, default_value_t = 6000, value_parser = clap::value_parser!(u32).range(8..=1048576))]
        value_len: u32,
    },
}

pub(super) const LONGEST: u32 = 1 << 20;

/// `remora kv`.
pub fn run(command: KvCommand) -> Result<()> {
    match command {
        KvCommand::Get { target, words, key } => {
            with_design!(target.design, get(&target, &words.bytes(&key)?))
        }
        KvCommand::Put { target, words, key, value } => {
            let value = if value == "-" {
                let mut bytes = Vec::new();
                std::io::stdin().take(u64::from(LONGEST) + 1).read_to_end(&mut bytes)?;
                bytes
            } else {
                value.into_vec()
            };
            with_design!(target.design, put(&target, &words.bytes(&key)?, &value))
        }
        KvCommand::Delete { target, words, key } => {
            with_design!(target.design, delete(&target, &words.bytes(&key)?))
        }
        KvCommand::Load { target, file } => with_design!(target.design, load(&target, &file)),
        KvCommand::Exercise { target, exercise, value_len } => {
            with_design!(target.design, record(&target, &exercise, value_len))
        }
    }
}

pub(super) fn session<D: Design>(target: &Target, max_key: usize) -> Result<Session<D>> {
    let max_key =
        u32::try_from(max_key.max(16)).ok().filter(|len| *len <= LONGEST).context("keys end at 1 MiB")?;
    let config = ClientConfig { window: 1, max_key, max_value: LONGEST, ..ClientConfig::default() };
    Session::connect(&target.port, &target.connect, config)
}

fn get<D: Design>(target: &Target, key: &[u8]) -> Result<()> {
    match session::<D>(target, key.len())?.get(key)? {
        Some(value) => {
            print::bytes(&value);
            if !value.ends_with(b"\n") {
                print::line("");
            }
            Ok(())
        }
        None => bail!("no such key: {}", shown(key)),
    }
}

fn put<D: Design>(target: &Target, key: &[u8], value: &[u8]) -> Result<()> {
    if value.len() > LONGEST as usize {
        bail!("values end at 1 MiB");
    }
    session::<D>(target, key.len())?.put(key, value)
}

fn delete<D: Design>(target: &Target, key: &[u8]) -> Result<()> {
    if !session::<D>(target, key.len())?.delete(key)? {
        bail!("no such key: {}", shown(key));
    }
    Ok(())
}
