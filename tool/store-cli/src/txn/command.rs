//! `remora txn`: the client commands of the transactional store.

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

/// Subcommands of `remora txn`.
#[derive(Subcommand)]
pub(crate) enum TxnCommand {
    /// Print the values of keys, read in one transaction, one on each line.
    #[command(
        after_help = "Examples:\n  remora txn get alice --shards 127.0.0.1:7491\n  remora txn get alice bob --shards 127.0.0.1:7491,127.0.0.1:7492"
    )]
    Get {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        words: KeyWords,
        /// Keys to read.
        #[arg(required = true)]
        keys: Vec<OsString>,
    },
    /// Store values under keys in one transaction: all of them or none.
    #[command(
        after_help = "Examples:\n  remora txn put alice 100 bob 100 --shards 127.0.0.1:7491,127.0.0.1:7492\n  remora txn put colour blue --members shards.toml"
    )]
    Put {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        words: KeyWords,
        /// Keys and values in alternation.
        #[arg(required = true, num_args = 2.., value_names = ["KEY", "VALUE"])]
        pairs: Vec<OsString>,
    },
    /// Remove keys in one transaction: all of them or none.
    #[command(after_help = "Example:\n  remora txn delete alice bob --shards 127.0.0.1:7491,127.0.0.1:7492")]
    Delete {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        words: KeyWords,
        /// Keys to remove.
        #[arg(required = true)]
        keys: Vec<OsString>,
    },
    /// Add numbers to the values of keys in one transaction, and print the sums. An absent key counts as 0.
    #[command(
        after_help = "Examples:\n  remora txn add alice -5 bob 5 --shards 127.0.0.1:7491,127.0.0.1:7492\n  remora txn add visits 1 --times 1000 --members shards.toml"
    )]
    Add {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        words: KeyWords,
        /// Keys and numbers in alternation; each number is added to the value of the key before it.
        #[arg(required = true, num_args = 2.., value_names = ["KEY", "NUMBER"], allow_negative_numbers = true)]
        pairs: Vec<OsString>,
        /// Number of times to repeat the additions, each time in its own transaction.
        #[arg(long, default_value_t = 1, value_parser = natural::<u64>)]
        times: u64,
    },
    /// Execute transactions from standard input: BEGIN, GET key, PUT key value, DELETE key, COMMIT and
    /// ABORT. Each line is answered by one line.
    #[command(
        after_help = "Examples:\n  remora txn shell --shards 127.0.0.1:7491,127.0.0.1:7492\n  remora txn shell --members etcd://127.0.0.1:2379/shards < transfers"
    )]
    Shell {
        #[command(flatten)]
        target: Target,
    },
}

/// Maximum number of keys in a transaction of this client.
pub const MAX_KEYS: u32 = 64;

/// Runs a subcommand of `remora txn`.
pub(crate) fn run(command: TxnCommand) -> Result<()> {
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

/// Prints one value on each line. Control characters and backslashes are escaped.
fn show(values: impl IntoIterator<Item = Vec<u8>>) {
    for value in values {
        print::bytes(&[&escape(&value)[..], b"\n"].concat());
    }
}

/// Returns the bytes of the keys.
fn all(words: &KeyWords, keys: &[OsString]) -> Result<Vec<Vec<u8>>> {
    keys.iter().map(|key| words.bytes(key)).collect()
}

/// Splits alternating arguments into keys and the values or numbers after them.
fn in_turn(words: &KeyWords, pairs: &[OsString]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let (pairs, rest) = pairs.as_chunks::<2>();
    ensure!(rest.is_empty(), "{:?} has no value: give keys and values in alternation", rest[0]);
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

/// Returns the number in the value of a key, or 0 if the key is absent.
fn number(talk: &mut Client, key: &[u8]) -> Step<i64> {
    let Some(value) = talk.get(key)? else { return Ok(0) };
    let number = std::str::from_utf8(&value).ok().and_then(|text| text.trim().parse().ok());
    let text = || format!("{} holds {:?}, which is no number", shown(key), shown(&value));
    number.ok_or_else(|| Unfinished::Lost(Error::Refused(text())))
}

fn add(target: &Target, pairs: &[(Vec<u8>, Vec<u8>)], times: u64) -> Result<()> {
    let addend = |(key, text): &(Vec<u8>, Vec<u8>)| {
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        let number: i64 = number.with_context(|| {
            format!("{:?} is not a number; it cannot be added to {}", shown(text), shown(key))
        })?;
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
