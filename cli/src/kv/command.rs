//! `remora kv get|put|delete|load|exercise`.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use store::kv::ClientConfig;
use store::load::Pairs;

use super::client::Session;
use super::exercise::run as record;
use super::{Design, DesignName};
use crate::device::PortArgs;
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
    #[command(after_help = "Example:\n  remora kv get user42\n\nEnds with status 1 if there is no such key.")]
    Get {
        #[command(flatten)]
        target: Target,
        /// The key.
        key: String,
    },
    /// Store a value under a key.
    #[command(after_help = "Examples:\n  remora kv put colour blue\n  remora kv put picture - < picture.png")]
    Put {
        #[command(flatten)]
        target: Target,
        /// The key.
        key: String,
        /// The value; - takes it from standard input.
        value: String,
    },
    /// Remove a key.
    #[command(
        after_help = "Example:\n  remora kv delete colour\n\nEnds with status 1 if there is no such key."
    )]
    Delete {
        #[command(flatten)]
        target: Target,
        /// The key.
        key: String,
    },
    /// Store every `key value` line of a file.
    #[command(
        after_help = "Example:\n  remora kv load words.txt\n\nThe key ends at the first space or tab; the rest of the line is the value."
    )]
    Load {
        #[command(flatten)]
        target: Target,
        /// The file.
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

const LONGEST: u32 = 1 << 20;

/// `remora kv`.
pub fn run(command: KvCommand) -> Result<()> {
    match command {
        KvCommand::Get { target, key } => with_design!(target.design, get(&target, &key)),
        KvCommand::Put { target, key, value } => {
            let value = if value == "-" {
                let mut bytes = Vec::new();
                std::io::stdin().take(u64::from(LONGEST) + 1).read_to_end(&mut bytes)?;
                bytes
            } else {
                value.into_bytes()
            };
            with_design!(target.design, put(&target, &key, &value))
        }
        KvCommand::Delete { target, key } => with_design!(target.design, delete(&target, &key)),
        KvCommand::Load { target, file } => with_design!(target.design, load(&target, &file)),
        KvCommand::Exercise { target, exercise, value_len } => {
            with_design!(target.design, record(&target, &exercise, value_len))
        }
    }
}

fn session<D: Design>(target: &Target, max_key: usize) -> Result<Session<D>> {
    let max_key =
        u32::try_from(max_key.max(16)).ok().filter(|len| *len <= LONGEST).context("keys end at 1 MiB")?;
    let config = ClientConfig { window: 1, max_key, max_value: LONGEST, ..ClientConfig::default() };
    Session::connect(&target.port, &target.connect, config)
}

fn get<D: Design>(target: &Target, key: &str) -> Result<()> {
    match session::<D>(target, key.len())?.get(key.as_bytes())? {
        Some(value) => {
            print::bytes(&value);
            if !value.ends_with(b"\n") {
                print::line("");
            }
            Ok(())
        }
        None => bail!("no such key: {key}"),
    }
}

fn put<D: Design>(target: &Target, key: &str, value: &[u8]) -> Result<()> {
    if value.len() > LONGEST as usize {
        bail!("values end at 1 MiB");
    }
    session::<D>(target, key.len())?.put(key.as_bytes(), value)
}

fn delete<D: Design>(target: &Target, key: &str) -> Result<()> {
    if !session::<D>(target, key.len())?.delete(key.as_bytes())? {
        bail!("no such key: {key}");
    }
    Ok(())
}

fn load<D: Design>(target: &Target, path: &PathBuf) -> Result<()> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let bar = indicatif::ProgressBar::new(file.metadata()?.len());
    let mut pairs = Pairs::new(BufReader::new(bar.wrap_read(file)));
    let mut session = session::<D>(target, 1024)?;
    let (mut loaded, mut bad) = (0u64, 0u64);
    while let Some(pair) = pairs.next_pair().with_context(|| format!("reading {}", path.display()))? {
        match pair {
            Ok(pair) => {
                session.put(pair.key, pair.value).with_context(|| format!("after {loaded} keys"))?;
                loaded += 1;
            }
            Err(line) => {
                bad += 1;
                bar.suspend(|| eprintln!("{}: {line}", path.display()));
            }
        }
    }
    bar.finish_and_clear();
    print::line(format_args!("{loaded} keys stored, {bad} lines left out"));
    Ok(())
}
