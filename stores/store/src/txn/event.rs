//! The events that a client of either design reports.

use super::transaction::{EntryId, Outcome, Tx};
use crate::Broken;

/// The reason for which an operation was not started.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The window's maximum of transactions is under way, or the buffers of earlier ones are not returned
    /// yet.
    WindowFull,
    /// The transaction has its maximum number of keys.
    TooManyKeys,
    /// The key is longer than this client's maximum.
    KeyTooLong,
    /// The value is longer than the maximum of this client or the shard.
    ValueTooLong,
    /// The transaction is not open.
    NotOpen,
    /// The clock has reached its last tick.
    ClockOut,
    /// A connection has failed. [`Machine::abandon`](super::Machine::abandon) returns the transactions under
    /// way.
    Broken(Broken),
}

impl core::fmt::Display for Refused {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Refused::WindowFull => "as many transactions as the window allows are under way",
            Refused::TooManyKeys => "the transaction has as many keys as it may",
            Refused::KeyTooLong => "the key is longer than this client takes",
            Refused::ValueTooLong => "the value is longer than client or shard take",
            Refused::NotOpen => "the transaction is not open",
            Refused::ClockOut => "the clock has come to its end",
            Refused::Broken(broken) => return broken.fmt(f),
        })
    }
}

impl core::error::Error for Refused {}

impl From<Broken> for Refused {
    fn from(broken: Broken) -> Refused {
        Refused::Broken(broken)
    }
}

/// An event that a client reports to its caller.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A read of a key has completed.
    Read {
        /// Identifier of the transaction.
        tx: Tx,
        /// Key of the entry.
        entry: EntryId,
        /// The value; `None` if the key is absent.
        value: Option<&'a [u8]>,
    },
    /// A transaction has ended.
    Ended {
        /// The transaction. Its place in the window may be reused.
        tx: Tx,
        /// Outcome of the transaction.
        outcome: Outcome,
        /// Number of sequential round trips that the transaction took.
        round_trips: u32,
        /// Number of pending versions of other transactions that it resolved.
        resolved: u32,
    },
}
