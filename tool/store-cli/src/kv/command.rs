//! `remora kv`: the client commands of the key-value store.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use clap::{Args, Subcommand};

use super::client_bench::{BenchArgs, run as measure};
use super::dump::{Wanted, dump as list_pairs, load as load_json, scan as list_keys};
use super::load::load as load_lines;
use super::shell::run as type_lines;
use super::target::{LONGEST, Target, config, listing_config, with_session};
use remora_options::escape::{KeyWords, shown};
use remora_options::number::natural;
use remora_options::print;
use remora_service::kv::KvSession;

/// Subcommands of `remora kv`.
#[derive(Subcommand)]
pub(crate) enum KvCommand {
    /// Print the values of keys.
    #[command(
        after_help = "Examples:\n  remora kv get user42\n  remora kv get colour shape size\n  remora kv get --escaped 'two\\swords\\xff'\n  remora kv get colour --transport rma --token-file token --fingerprint 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n\nSeveral keys are printed as `key value` lines. Ends with status 1 if there is no such key."
    )]
    Get {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        words: KeyWords,
        /// Keys to look up.
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<OsString>,
    },
    /// Store a value under a key.
    #[command(after_help = "Examples:\n  remora kv put colour blue\n  remora kv put picture - < picture.png")]
    Put {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        words: KeyWords,
        /// Key to store the value under.
        key: OsString,
        /// Value to store; - reads it from standard input.
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
        /// Key to remove.
        key: OsString,
    },
    /// Store every `key value` line of a file.
    #[command(
        after_help = "Examples:\n  remora kv load words.txt\n  remora kv load - < words.txt\n\nThe key ends at the first space or tab; the rest of the line is the value. Lines without a pair, or with one that is too\nlong, are reported by their number and left out."
    )]
    Load {
        #[command(flatten)]
        target: Target,
        /// File to read; - reads standard input.
        file: PathBuf,
        /// Read JSON lines as `remora kv dump --json` prints them [default: `key value` lines].
        #[arg(long)]
        json: bool,
    },
    /// Print all keys, sorted.
    #[command(
        after_help = "Examples:\n  remora kv scan\n  remora kv scan --prefix user --limit 10 --json\n\nEvery key that exists during the whole command is listed, even if other keys change meanwhile."
    )]
    Scan {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        wanted: WantedArgs,
    },
    /// Print all pairs, sorted by key, in the format that `remora kv load` reads.
    #[command(
        after_help = "Examples:\n  remora kv dump > words.txt\n  remora kv dump --json > table.jsonl\n  remora kv load --json table.jsonl\n\nEach value is read after its key was listed, so changes that happen meanwhile may or may not appear."
    )]
    Dump {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        wanted: WantedArgs,
    },
    /// Execute the commands on standard input (get, put, delete, scan) over one connection.
    #[command(after_help = "Examples:\n  remora kv shell\n  remora kv shell < lines.txt")]
    Shell {
        #[command(flatten)]
        target: Target,
    },
    /// Run a YCSB workload against a server and report its rate and latencies.
    #[command(
        after_help = "Examples:\n  remora kv bench --load --workload A\n  remora kv bench --load --workload ycsb/workloads/workloadb --seconds 30\n  remora kv bench --design prism --records 100000 --window 1 --json\n\nEvery value that is read is checked: the table holds what --load stored, or what `remora serve kv --records N --value-len L`\nserves. These tables have no order, so a scan is GETs of consecutive record numbers."
    )]
    Bench {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        bench: BenchArgs,
    },
}

/// Options that select keys and the output format.
#[derive(Args, Clone, Debug)]
pub(crate) struct WantedArgs {
    /// Print only keys with this prefix [default: all keys].
    #[arg(long, default_value = "", hide_default_value = true)]
    prefix: OsString,
    #[command(flatten)]
    words: KeyWords,
    /// Maximum number of keys to print [default: unlimited].
    #[arg(long, default_value_t = u64::MAX, hide_default_value = true, value_parser = natural::<u64>)]
    limit: u64,
    /// Print one JSON object per line, with bytes that are not UTF-8 in base64.
    #[arg(long)]
    json: bool,
}

impl WantedArgs {
    fn wanted(&self) -> Result<Wanted> {
        Ok(Wanted { prefix: self.words.bytes(&self.prefix)?, limit: self.limit, json: self.json })
    }
}

/// Runs a subcommand of `remora kv`.
pub(crate) fn run(command: KvCommand) -> Result<()> {
    match command {
        KvCommand::Get { target, words, keys } => {
            let keys = keys.iter().map(|key| words.bytes(key)).collect::<Result<Vec<_>>>()?;
            let longest = keys.iter().map(Vec::len).max().unwrap_or(0);
            with_session!(target, config(longest)?, get(&keys))
        }
        KvCommand::Put { target, words, key, value } => {
            let value = if value == "-" {
                let mut bytes = Vec::new();
                std::io::stdin().take(u64::from(LONGEST) + 1).read_to_end(&mut bytes)?;
                bytes
            } else {
                value.into_vec()
            };
            ensure!(value.len() <= LONGEST as usize, "the value is longer than 1 MiB");
            let key = words.bytes(&key)?;
            with_session!(target, config(key.len())?, put(&key, &value))
        }
        KvCommand::Delete { target, words, key } => {
            let key = words.bytes(&key)?;
            with_session!(target, config(key.len())?, delete(&key))
        }
        KvCommand::Load { target, file, json: true } => {
            with_session!(target, config(LONGEST as usize)?, load_json(&file))
        }
        KvCommand::Load { target, file, json: false } => {
            with_session!(target, config(LONGEST as usize)?, load_lines(&file))
        }
        KvCommand::Scan { target, wanted } => {
            let wanted = wanted.wanted()?;
            with_session!(target, listing_config(), list_keys(&wanted))
        }
        KvCommand::Dump { target, wanted } => {
            let wanted = wanted.wanted()?;
            with_session!(target, listing_config(), list_pairs(&wanted))
        }
        KvCommand::Shell { target } => with_session!(target, listing_config(), type_lines()),
        KvCommand::Bench { target, bench } => measure(&target, &bench),
    }
}

fn get(session: &mut impl KvSession, keys: &[Vec<u8>]) -> Result<()> {
    let mut missing = Vec::new();
    for key in keys {
        let Some(value) = session.get(key)? else {
            missing.push(shown(key));
            continue;
        };
        if keys.len() > 1 {
            print::bytes(&[&key[..], b" "].concat());
        }
        print::bytes(&value);
        if !value.ends_with(b"\n") {
            print::line("");
        }
    }
    match missing[..] {
        [] => Ok(()),
        _ => bail!("no such key: {}", missing.join(" ")),
    }
}

fn put(session: &mut impl KvSession, key: &[u8], value: &[u8]) -> Result<()> {
    Ok(session.put(key, value)?)
}

fn delete(session: &mut impl KvSession, key: &[u8]) -> Result<()> {
    ensure!(session.delete(key)?, "no such key: {}", shown(key));
    Ok(())
}
