//! `remora txn`.

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Subcommand};

use super::client::{Session, Size};
use super::line::escape;
use super::servers::ServersArgs;
use super::shell;
use super::transact::{Step, Talk, Trouble};
use crate::device::PortArgs;
use crate::exercise::ExerciseArgs;
use crate::print;

/// Which store.
#[derive(Args, Clone, Debug)]
pub struct Target {
    #[command(flatten)]
    pub servers: ServersArgs,
    #[command(flatten)]
    pub port: PortArgs,
}

/// `remora txn`.
#[derive(Subcommand)]
pub enum TxnCommand {
    /// Print what keys hold, all of the same moment, a line each.
    #[command(
        after_help = "Examples:\n  remora txn get alice --shards 127.0.0.1:7491\n  remora txn get alice bob --shards 127.0.0.1:7491,127.0.0.1:7492"
    )]
    Get {
        #[command(flatten)]
        target: Target,
        /// The keys.
        #[arg(required = true)]
        keys: Vec<String>,
    },
    /// Store values, all of them or none.
    #[command(
        after_help = "Examples:\n  remora txn put alice 100 bob 100 --shards 127.0.0.1:7491,127.0.0.1:7492\n  remora txn put colour blue --members shards.toml"
    )]
    Put {
        #[command(flatten)]
        target: Target,
        /// Keys, and their values.
        #[arg(required = true, num_args = 2.., value_names = ["KEY", "VALUE"])]
        pairs: Vec<String>,
    },
    /// Remove keys, all of them or none.
    #[command(after_help = "Example:\n  remora txn delete alice bob --shards 127.0.0.1:7491,127.0.0.1:7492")]
    Delete {
        #[command(flatten)]
        target: Target,
        /// The keys.
        #[arg(required = true)]
        keys: Vec<String>,
    },
    /// Add to numbers, to all of them or none; a key that is absent is 0. Prints what they are then.
    #[command(
        after_help = "Examples:\n  remora txn add alice -5 bob 5 --shards 127.0.0.1:7491,127.0.0.1:7492\n  remora txn add visits 1 --times 1000 --members shards.toml"
    )]
    Add {
        #[command(flatten)]
        target: Target,
        /// Keys, and what is added.
        #[arg(required = true, num_args = 2.., value_names = ["KEY", "NUMBER"], allow_negative_numbers = true)]
        pairs: Vec<String>,
        /// So often, a transaction each time.
        #[arg(long, default_value_t = 1)]
        times: u64,
    },
    /// Take BEGIN, GET key, PUT key value, DELETE key, COMMIT and ABORT from standard input, and answer each line by one.
    #[command(
        after_help = "Examples:\n  remora txn shell --shards 127.0.0.1:7491,127.0.0.1:7492\n  remora txn shell --members etcd://127.0.0.1:2379/shards < transfers"
    )]
    Shell {
        #[command(flatten)]
        target: Target,
    },
    /// Do random transactions, and record them for a judge of serializability.
    #[command(
        after_help = "Examples:\n  remora txn exercise --history one.jsonl --shards 127.0.0.1:7491,127.0.0.1:7492\n  remora txn exercise --history two.jsonl --number 1 --rate 60 --seconds 60 --members shards.toml\n\nWhat several processes recorded on one machine is one history, whatever became of them: docs/KV.md says how to judge it."
    )]
    Exercise {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        exercise: ExerciseArgs,
    },
}

/// Keys of a transaction that this client has room for.
const MAX_KEYS: u32 = 64;

/// `remora txn`.
pub fn run(command: TxnCommand) -> Result<()> {
    match command {
        TxnCommand::Get { target, keys } => get(&target, &keys),
        TxnCommand::Put { target, pairs } => put(&target, &pairs),
        TxnCommand::Delete { target, keys } => delete(&target, &keys),
        TxnCommand::Add { target, pairs, times } => add(&target, &pairs, times),
        TxnCommand::Exercise { target, exercise } => super::exercise::run(&target, &exercise, MAX_KEYS),
        TxnCommand::Shell { target } => shell::run(talk(&target)?),
    }
}

fn talk(target: &Target) -> Result<Talk> {
    let size = Size { window: 1, max_keys: MAX_KEYS };
    Ok(Talk::new(Session::open(&target.port, &target.servers.find()?, size)?))
}

/// Lines of values; a backslash stands before what would break one.
fn show(values: impl IntoIterator<Item = Vec<u8>>) {
    for value in values {
        print::bytes(&[&escape(&value)[..], b"\n"].concat());
    }
}

fn get(target: &Target, keys: &[String]) -> Result<()> {
    let mut talk = talk(target)?;
    let values =
        talk.transaction(|talk| keys.iter().map(|key| talk.get(key.as_bytes())).collect::<Step<Vec<_>>>())?;
    let values =
        keys.iter().zip(values).map(|(key, value)| value.with_context(|| format!("no such key: {key}")));
    show(values.collect::<Result<Vec<_>>>()?);
    talk.close()
}

/// Keys with what belongs to them.
fn pairs(words: &[String]) -> Result<Vec<(&str, &str)>> {
    let (pairs, rest) = words.as_chunks::<2>();
    ensure!(rest.is_empty(), "{:?} has nothing behind it: name keys and values in turn", rest[0]);
    Ok(pairs.iter().map(|[key, value]| (key.as_str(), value.as_str())).collect())
}

fn put(target: &Target, words: &[String]) -> Result<()> {
    let pairs = pairs(words)?;
    let mut talk = talk(target)?;
    talk.transaction(|talk| {
        pairs.iter().try_for_each(|(key, value)| talk.put(key.as_bytes(), value.as_bytes()))
    })?;
    talk.close()
}

fn delete(target: &Target, keys: &[String]) -> Result<()> {
    let mut talk = talk(target)?;
    talk.transaction(|talk| keys.iter().try_for_each(|key| talk.delete(key.as_bytes())))?;
    talk.close()
}

/// The number that a key holds.
fn number(talk: &mut Talk, key: &str) -> Step<i64> {
    let Some(value) = talk.get(key.as_bytes())? else { return Ok(0) };
    let number = std::str::from_utf8(&value).ok().and_then(|text| text.trim().parse().ok());
    let shown = String::from_utf8_lossy(&escape(&value)).into_owned();
    number.with_context(|| format!("{key} holds {shown:?}, which is no number")).map_err(Trouble::Lost)
}

fn add(target: &Target, words: &[String], times: u64) -> Result<()> {
    let addend = |(key, text)| {
        let number: i64 =
            str::parse(text).with_context(|| format!("{text:?} is no number to add to {key}"))?;
        Ok((key, number))
    };
    let addends = pairs(words)?.into_iter().map(addend).collect::<Result<Vec<(&str, i64)>>>()?;
    let mut talk = talk(target)?;
    let mut sums = Vec::new();
    for _ in 0..times {
        sums = talk.transaction(|talk| {
            let mut sums = Vec::new();
            for (key, addend) in &addends {
                let sum = number(talk, key)?
                    .checked_add(*addend)
                    .with_context(|| format!("{key} would have more than 64 bits"))?;
                talk.put(key.as_bytes(), sum.to_string().as_bytes())?;
                sums.push(sum);
            }
            Ok(sums)
        })?;
    }
    show(sums.iter().map(|sum| sum.to_string().into_bytes()));
    talk.close()
}
