//! Files of `key value` lines, stored by a client (`remora kv load`) or before clients come (`remora serve kv
//! --file`).

use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context as _, Result};
use indicatif::ProgressBar;
use remora_store::load::{Pair, Pairs};

use remora_options::{output, print};
use remora_service::kv::KvSession;

/// What came of a pair.
pub enum Stored {
    /// It is in.
    Yes,
    /// It cannot be stored, for this reason; the next one may.
    No(String),
}

/// Bad lines that are named; of the others only their number is said.
const NAMED: u64 = 10;

/// Stores all pairs, and names lines that hold none or one that cannot be stored; how many are in, and how
/// many were left out.
///
/// # Errors
/// Those of reading, and of `store`, which end it.
pub fn store_all(
    mut pairs: Pairs<impl BufRead>,
    name: &str,
    bar: &ProgressBar,
    mut store: impl FnMut(Pair<'_>) -> Result<Stored>,
) -> Result<(u64, u64)> {
    let (mut loaded, mut bad) = (0, 0);
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

/// `remora kv load`.
pub fn load(session: &mut impl KvSession, path: &Path) -> Result<()> {
    let (file, name, len) = output::input(path)?;
    let bar = if len > 0 { ProgressBar::new(len) } else { ProgressBar::no_length() };
    // How long keys may be, the server says.
    let pairs = Pairs::new(BufReader::new(bar.wrap_read(file)));
    let (loaded, bad) = store_all(pairs, &name, &bar, |pair| put(session, pair))?;
    print::line(format_args!("{loaded} keys stored, {bad} lines left out"));
    Ok(())
}

/// Stores a pair, if the server takes one of such lengths.
///
/// # Errors
/// The server is full, or the connection fails.
pub fn put(session: &mut impl KvSession, pair: Pair<'_>) -> Result<Stored> {
    Ok(session.store(pair.key, pair.value)?.map_or(Stored::Yes, Stored::No))
}
