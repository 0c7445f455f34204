//! `remora txn`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use anyhow::{Context as _, Result, ensure};
use clap::Subcommand;

use super::shell;
use super::target::Target;
use crate::advice::start_shard;
use remora_options::escape::{KeyWords, escape, shown};
use remora_options::number::natural;
use remora_options::print;
use remora_service::Error;
use remora_service::txn::{Client, Session, Size, Step, Unfinished};

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
        #[command(flatten)]
        words: KeyWords,
        /// The keys that are read.
        #[arg(required = true)]
        keys: Vec<OsString>,
    },
    /// Store values, all of them or none.
    #[command(
        after_help = "Examples:\n  remora txn put alice 100 bob 100 --shards 127.0.0.1:7491,127.0.0.1:7492\n  remora txn put colour blue --members shards.toml"
    )]
    Put {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        words: KeyWords,
        /// Keys and values in turn.
        #[arg(required = true, num_args = 2.., value_names = ["KEY", "VALUE"])]
        pairs: Vec<OsString>,
    },
    /// Remove keys, all of them or none.
    #[command(after_help = "Example:\n  remora txn delete alice bob --shards 127.0.0.1:7491,127.0.0.1:7492")]
    Delete {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        words: KeyWords,
        /// The keys that are removed.
        #[arg(required = true)]
        keys: Vec<OsString>,
    },
    /// Add to numbers, to all of them or none; a key that is absent is 0. Prints what they are then.
    #[command(
        after_help = "Examples:\n  remora txn add alice -5 bob 5 --shards 127.0.0.1:7491,127.0.0.1:7492\n  remora txn add visits 1 --times 1000 --members shards.toml"
    )]
    Add {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        words: KeyWords,
        /// Keys and numbers in turn; each number is added to its key.
        #[arg(required = true, num_args = 2.., value_names = ["KEY", "NUMBER"], allow_negative_numbers = true)]
        pairs: Vec<OsString>,
        /// So often, a transaction each time.
        #[arg(long, default_value_t = 1, value_parser = natural::<u64>)]
        times: u64,
    },
    /// Take BEGIN, GET key, PUT key value, DELETE key, COMMIT and ABORT from standard input, and answer each
    /// line by one.
    #[command(
        after_help = "Examples:\n  remora txn shell --shards 127.0.0.1:7491,127.0.0.1:7492\n  remora txn shell --members etcd://127.0.0.1:2379/shards < transfers"
    )]
    Shell {
        #[command(flatten)]
        target: Target,
    },
}

/// Keys of a transaction that this client holds.
pub const MAX_KEYS: u32 = 64;

/// `remora txn`.
pub fn run(command: TxnCommand) -> Result<()> {
    match command {
        TxnCommand::Get { target, words, keys } => get(&target, &all(&words, &keys)?),
        TxnCommand::Put { target, words, pairs } => put(&target, &in_turn(&words, &pairs)?),
        TxnCommand::Delete { target, words, keys } => delete(&target, &all(&words, &keys)?),
        TxnCommand::Add { target, words, pairs, times } => add(&target, &in_turn(&words, &pairs)?, times),
        TxnCommand::Shell { target } => shell::run(talk(&target)?),
    }
}

fn talk(target: &Target) -> Result<Client> {
    let size = Size { window: 1, max_keys: MAX_KEYS };
    let shards = target.servers.find()?;
    let session = Session::open(&target.port.open()?, &shards, size);
    Ok(Client::new(session.map_err(|error| start_shard(error, &shards))?))
}

/// Lines of values; a backslash stands before what would break one.
fn show(values: impl IntoIterator<Item = Vec<u8>>) {
    for value in values {
        print::bytes(&[&escape(&value)[..], b"\n"].concat());
    }
}

/// The bytes of keys.
fn all(words: &KeyWords, keys: &[OsString]) -> Result<Vec<Vec<u8>>> {
    keys.iter().map(|key| words.bytes(key)).collect()
}

/// Keys with what belongs to them.
fn in_turn(words: &KeyWords, pairs: &[OsString]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let (pairs, rest) = pairs.as_chunks::<2>();
    ensure!(rest.is_empty(), "{:?} has nothing behind it: name keys and values in turn", rest[0]);
    pairs.iter().map(|[key, value]| Ok((words.bytes(key)?, value.as_bytes().to_vec()))).collect()
}

fn get(target: &Target, keys: &[Vec<u8>]) -> Result<()> {
    let mut talk = talk(target)?;
    let values = talk.transaction(|talk| keys.iter().map(|key| talk.get(key)).collect::<Step<Vec<_>>>())?;
    let values = keys
        .iter()
        .zip(values)
        .map(|(key, value)| value.with_context(|| format!("no such key: {}", shown(key))));
    show(values.collect::<Result<Vec<_>>>()?);
    Ok(talk.close()?)
}

fn put(target: &Target, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
    let mut talk = talk(target)?;
    talk.transaction(|talk| pairs.iter().try_for_each(|(key, value)| talk.put(key, value)))?;
    Ok(talk.close()?)
}

fn delete(target: &Target, keys: &[Vec<u8>]) -> Result<()> {
    let mut talk = talk(target)?;
    talk.transaction(|talk| keys.iter().try_for_each(|key| talk.delete(key)))?;
    Ok(talk.close()?)
}

/// The number that a key holds.
fn number(talk: &mut Client, key: &[u8]) -> Step<i64> {
    let Some(value) = talk.get(key)? else { return Ok(0) };
    let number = std::str::from_utf8(&value).ok().and_then(|text| text.trim().parse().ok());
    let text = || format!("{} holds {:?}, which is no number", shown(key), shown(&value));
    number.ok_or_else(|| Unfinished::Lost(Error::Refused(text())))
}

fn add(target: &Target, pairs: &[(Vec<u8>, Vec<u8>)], times: u64) -> Result<()> {
    let addend = |(key, text): &(Vec<u8>, Vec<u8>)| {
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        let number: i64 =
            number.with_context(|| format!("{:?} is no number to add to {}", shown(text), shown(key)))?;
        Ok((key.clone(), number))
    };
    let addends = pairs.iter().map(addend).collect::<Result<Vec<(Vec<u8>, i64)>>>()?;
    let mut talk = talk(target)?;
    let mut sums = Vec::new();
    for _ in 0..times {
        sums = talk.transaction(|talk| {
            let mut sums = Vec::new();
            for (key, addend) in &addends {
                let text = || format!("{} would have more than 64 bits", shown(key));
                let sum = number(talk, key)?.checked_add(*addend);
                let sum = sum.ok_or_else(|| Unfinished::Lost(Error::Refused(text())))?;
                talk.put(key, sum.to_string().as_bytes())?;
                sums.push(sum);
            }
            Ok(sums)
        })?;
    }
    show(sums.iter().map(|sum| sum.to_string().into_bytes()));
    Ok(talk.close()?)
}
