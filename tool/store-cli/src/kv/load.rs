//! Stores files of `key value` lines: through a client (`remora kv load`), or in the server before it
//! accepts clients (`remora serve kv --file`).

use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context as _, Result};
use indicatif::ProgressBar;
use remora_store::load::{Pair, Pairs};

use remora_options::{output, print};
use remora_service::kv::KvSession;

/// The result of storing a pair.
pub(crate) enum Stored {
    /// The pair was stored.
    Yes,
    /// The pair cannot be stored, for this reason. Later pairs may still be stored.
    No(String),
}

/// Number of invalid lines that are reported one by one. Further ones are only counted.
const NAMED: u64 = 10;

/// Stores all pairs with `store`. Reports lines without a pair, or with one that cannot be stored. Returns
/// the numbers of stored pairs and of lines that were left out.
///
/// # Errors
/// Fails at the first error of reading or of `store`.
pub(crate) fn store_all(
    mut pairs: Pairs<impl BufRead>,
    name: &str,
    bar: &ProgressBar,
    mut store: impl FnMut(Pair<'_>) -> Result<Stored>,
) -> Result<(u64, u64)> {
    let mut loaded = 0;
    let mut bad = 0;
    let ended = loop {
        let bad_line = match pairs.next_pair().with_context(|| format!("reading {name}")) {
            Err(error) => break Err(error),
            Ok(None) => break Ok((loaded, bad)),
            Ok(Some(Err(line))) => line.to_string(),
            Ok(Some(Ok(pair))) => match store(pair) {
                Ok(Stored::Yes) => {
                    loaded += 1;
                    continue;
                }
                Ok(Stored::No(words)) => format!("line {}: {words}", pair.line),
                Err(error) => {
                    break Err(error.context(format!("{name}, line {}, after {loaded} keys", pair.line)));
                }
            },
        };
        bad += 1;
        if bad <= NAMED {
            bar.suspend(|| eprintln!("{name}: {bad_line}"));
        }
    };
    bar.finish_and_clear();
    ended
}

/// Runs `remora kv load` for a file of `key value` lines.
pub(crate) fn load(session: &mut impl KvSession, path: &Path) -> Result<()> {
    let (file, name, len) = output::input(path)?;
    let bar = if len > 0 { ProgressBar::new(len) } else { ProgressBar::no_length() };
    // The server checks the lengths of keys and values, so the parser has no limits here.
    let pairs = Pairs::new(BufReader::new(bar.wrap_read(file)));
    let (loaded, bad) = store_all(pairs, &name, &bar, |pair| put(session, pair))?;
    print::line(format_args!("{loaded} keys stored, {bad} lines left out"));
    Ok(())
}

/// Stores a pair, unless the server does not accept its lengths.
///
/// # Errors
/// Fails if the server is full or the connection fails.
pub(crate) fn put(session: &mut impl KvSession, pair: Pair<'_>) -> Result<Stored> {
    Ok(session.store(pair.key, pair.value)?.map_or(Stored::Yes, Stored::No))
}
