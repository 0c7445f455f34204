//! What a judge finds.

use crate::History;
use std::fmt;
use std::path::PathBuf;

/// The kinds of violation, by the names that Adya's thesis and Jepsen use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Anomaly {
    /// The events make no history, or break the rule that values are written once: the test is wrong, not the
    /// store.
    Malformed,
    /// The judge gave up: no verdict.
    Undecided,
    /// No order of one key's operations explains their results (Herlihy and Wing).
    NotLinearizable,
    /// A value was read that was never written.
    Unwritten,
    /// G1a: a value was read that a failed transaction wrote.
    AbortedRead,
    /// G1b: a value was read that its own transaction overwrote.
    IntermediateRead,
    /// A transaction contradicts itself: it does not read its own write, or reads two values under one key.
    Internal,
    /// P4: two transactions read the same version of a key and both replaced it.
    LostUpdate,
    /// G1c: a cycle of transactions each of which saw, or replaced what, the one before it wrote.
    CircularInformation,
    /// G-single: a cycle with one step from a reader to a transaction that replaced its value (fractured and
    /// stale reads).
    ReadSkew,
    /// G2: a cycle with more than one such step (write skew).
    WriteSkew,
    /// No order exists, though no single cycle shows it: each choice leads to another cycle.
    NoOrder,
    /// The two judges disagree: one of them is broken.
    Disagreement,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Malformed => "not a history",
            Self::Undecided => "undecided",
            Self::NotLinearizable => "not linearizable",
            Self::Unwritten => "read of a value that was never written",
            Self::AbortedRead => "aborted read (G1a)",
            Self::IntermediateRead => "intermediate read (G1b)",
            Self::Internal => "internal inconsistency",
            Self::LostUpdate => "lost update (P4)",
            Self::CircularInformation => "circular information flow (G1c)",
            Self::ReadSkew => "read skew (G-single)",
            Self::WriteSkew => "write skew (G2)",
            Self::NoOrder => "no order",
            Self::Disagreement => "the judges disagree",
        })
    }
}

/// A verdict against a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Kind of the anomaly.
    pub anomaly: Anomaly,
    /// The operations that show it.
    pub says: String,
}

impl Violation {
    pub(crate) fn malformed(says: String) -> Self {
        Self { anomaly: Anomaly::Malformed, says }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}: {}", self.anomaly, self.says)
    }
}

impl std::error::Error for Violation {}

/// Asserts that the judge accepts the history. If not, the history is kept as a file, whose name is in the
/// panic's message.
///
/// # Panics
/// The verdict is against it.
pub fn hold(name: &str, history: &History, judge: impl Fn(&History) -> Result<(), Violation>) {
    if let Err(violation) = judge(history) {
        let kept =
            keep(name, history).map_or_else(|error| error.to_string(), |path| path.display().to_string());
        panic!("{name}: {violation}\nthe history: {kept}");
    }
}

fn keep(name: &str, history: &History) -> std::io::Result<PathBuf> {
    let folder = cache().join("histories");
    std::fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{}.jsonl", name.replace(|c: char| !c.is_alphanumeric(), "-")));
    history.write(std::io::BufWriter::new(std::fs::File::create(&path)?))?;
    Ok(path)
}

/// Folder for things that are built or fetched, beside the workspace's crates.
pub(crate) fn cache() -> PathBuf {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("a crate lies in a folder of the root").join(".cache")
}
