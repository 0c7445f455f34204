//! The events that a client of either design reports.

use super::transaction::{EntryId, Outcome, Tx};
use crate::Broken;

/// The reason for which an operation was not started.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The window's maximum of transactions is under way, or the buffers of earlier ones are not returned
    /// yet.
    #[error("as many transactions as the window allows are under way")]
    WindowFull,
    /// The transaction has its maximum number of keys.
    #[error("the transaction has as many keys as it may")]
    TooManyKeys,
    /// The key is longer than this client's maximum.
    #[error("the key is longer than this client takes")]
    KeyTooLong,
    /// The value is longer than the maximum of this client or the shard.
    #[error("the value is longer than client or shard take")]
    ValueTooLong,
    /// The transaction is not open.
    #[error("the transaction is not open")]
    NotOpen,
    /// The clock has reached its last tick.
    #[error("the clock has come to its end")]
    ClockOut,
    /// A connection has failed. [`Machine::abandon`](super::Machine::abandon) returns the transactions under
    /// way.
    #[error("{0}")]
    Broken(Broken),
}

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
