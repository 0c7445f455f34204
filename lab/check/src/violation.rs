//! The verdicts of judges.

use std::fmt;

/// The kinds of violation, with the names of Adya's thesis and Jepsen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Anomaly {
    /// The events are not a valid history, or a value is written twice. The test is wrong, not the store.
    Malformed,
    /// The judge gave up without a verdict.
    Undecided,
    /// No order of one key's operations explains their results (Herlihy and Wing).
    NotLinearizable,
    /// A value was read that was never written.
    Unwritten,
    /// G1a: a value was read that a failed transaction wrote.
    AbortedRead,
    /// G1b: a value was read that its own transaction overwrote.
    IntermediateRead,
    /// A transaction contradicts itself: it does not read its own write, or reads two values of one key.
    Internal,
    /// P4: two transactions read the same version of a key and both replaced it.
    LostUpdate,
    /// G1c: a cycle of transactions in which each read or replaced a value of its predecessor.
    CircularInformation,
    /// G-single: a cycle with exactly one edge from a reader to a transaction that replaced its value
    /// (fractured and stale reads).
    ReadSkew,
    /// G2: a cycle with more than one such edge (write skew).
    WriteSkew,
    /// No order exists, but no single cycle proves it, because each choice leads to another cycle.
    NoOrder,
    /// The two judges disagree, so one of them is wrong.
    Disagreement,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
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

/// The refusal of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Kind of the anomaly.
    pub anomaly: Anomaly,
    /// Description with the operations that prove the anomaly.
    pub says: String,
}

impl Violation {
    pub(crate) fn malformed(says: String) -> Self {
        Self { anomaly: Anomaly::Malformed, says }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.anomaly, self.says)
    }
}

impl std::error::Error for Violation {}
