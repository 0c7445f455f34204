//! What a client of either design reports.

use super::transaction::{EntryId, Outcome, Tx};
use crate::Broken;

/// Something was not started.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// As many transactions as the window allows are under way, or the buffers of earlier ones have not gone
    /// back yet.
    WindowFull,
    /// The transaction has as many keys as it may.
    TooManyKeys,
    /// The key is longer than this client takes.
    KeyTooLong,
    /// The value is longer than this client or the shard takes.
    ValueTooLong,
    /// The transaction is not open.
    NotOpen,
    /// The clock has come to its end.
    ClockOut,
    /// A connection has failed; what is under way comes back by
    /// [`Machine::abandon`](super::Machine::abandon).
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

/// What a client tells its owner.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// What a transaction reads of a key; None: it is absent.
    Read {
        /// The transaction.
        tx: Tx,
        /// The key.
        entry: EntryId,
        /// The value.
        value: Option<&'a [u8]>,
    },
    /// A transaction has ended.
    Ended {
        /// The transaction; its place in the window may be taken again.
        tx: Tx,
        /// How.
        outcome: Outcome,
        /// Round trips that it took, one behind the other.
        round_trips: u32,
        /// Pending versions of others that it put in order.
        resolved: u32,
    },
}
