//! Files of `key value` lines, stored by a client (`remora kv load`) or before clients come (`remora serve kv
//! --file`).

use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use indicatif::ProgressBar;
use remora_store::kv::{Outcome, Refusal, Refused};
use remora_store::load::{Pair, Pairs};

use super::target::{LONGEST, Target, session};
use remora_bench::command::{output, print};
use remora_service::kv::KvDesign;
use remora_service::kv::{Session, bad_end, why_not};

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
pub fn load<D: KvDesign>(target: &Target, path: &Path) -> Result<()> {
    let (file, name, len) = output::input(path)?;
    let bar = if len > 0 { ProgressBar::new(len) } else { ProgressBar::no_length() };
    let pairs = Pairs::new(BufReader::new(bar.wrap_read(file)));
    // How long keys may be, the server says.
    let mut session = session::<D>(target, LONGEST as usize)?;
    let (loaded, bad) = store_all(pairs, &name, &bar, |pair| put(&mut session, pair))?;
    print::line(format_args!("{loaded} keys stored, {bad} lines left out"));
    Ok(())
}

/// Stores a pair, if the server takes one of such lengths.
///
/// # Errors
/// The server is full, or the connection fails.
pub fn put<D: KvDesign>(session: &mut Session<D>, pair: Pair<'_>) -> Result<Stored> {
    let look = |ended: &remora_store::kv::Finished<'_>| match ended.outcome {
        Outcome::Done => Ok(Stored::Yes),
        Outcome::Refused(Refusal::TooLong) => Ok(Stored::No(Refusal::TooLong.to_string())),
        other => Err(bad_end("PUT", other)),
    };
    let mut refused = None;
    let start = |client: &mut D::Client, nic: &mut remora_service::post::Direct<'_>| {
        use remora_store::kv::Machine as _;
        let started = client.put(pair.key, pair.value, nic);
        refused = started.err();
        started
    };
    match session.one(start, look) {
        Ok(ended) => Ok(ended?),
        Err(error) => match refused {
            Some(refused @ (Refused::KeyTooLong | Refused::ValueTooLong)) => Ok(Stored::No(why_not(refused))),
            _ => bail!(error),
        },
    }
}
