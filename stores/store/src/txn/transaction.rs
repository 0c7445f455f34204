//! The state of a transaction in a client's window, and of the keys that it accesses.

use super::layout::{Header, VersionRef};
use super::timestamp::Timestamp;
use crate::Broken;
use crate::heap::Phase as Grace;

/// The identity of a transaction: an index below the window. It is valid until the client reports the
/// outcome.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Tx(pub(super) u16);

impl Tx {
    /// Returns the index, below the window.
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// The identity of a key in a transaction. Keys are numbered in the order in which the transaction named
/// them.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct EntryId(pub(super) u16);

impl EntryId {
    /// Returns the number of the key.
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// The outcome of a transaction.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The transaction is committed with this timestamp, which is 0 in FaRM.
    Committed(Timestamp),
    /// The transaction has no effect, because of another transaction or because the caller aborted it. A
    /// retry may commit.
    Aborted,
    /// The transaction has no effect: a shard has no free buffer.
    NoBuffer,
    /// The transaction has no effect: the table has no slot for a new key.
    TableFull,
    /// The transaction has no effect: a value is longer than this client's buffers.
    TooLong,
    /// A connection failed before the commit, so the transaction has no effect.
    Failed(Broken),
    /// A connection failed during the commit: the transaction is committed or has no effect.
    Unknown(Broken),
}

/// The phase of a transaction.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The place in the window is free.
    #[default]
    Idle,
    /// The transaction reads and writes.
    Open,
    /// The caller has requested the commit; some keys are still being looked up.
    Closing,
    /// The transaction validates its reads, and links its versions as pending.
    Preparing,
    /// The transaction's cell is being decided.
    Deciding,
    /// The transaction is committed; some versions are still marked as pending.
    Finishing,
    /// The transaction removes its pending versions.
    Undoing(Outcome),
    /// The transaction ends when all its requests have completed.
    Dropping(Outcome),
}

/// The state of one transaction of the window.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Transaction {
    pub phase: Phase,
    /// Number of completions to come.
    pub under_way: u32,
    pub timestamp: Timestamp,
    /// Shard of the first written key.
    pub home: u16,
    /// True if the transaction commits by its only compare-and-swap.
    pub one_step: bool,
    /// True if the transaction lost against another one.
    pub lost: bool,
    /// Number of sequential round trips.
    pub trips: u32,
    /// Number of pending versions of other transactions that it resolved.
    pub resolved: u32,
}

/// The value of a key, as a transaction knows it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Known<'a> {
    /// The key has this value.
    Value(&'a [u8]),
    /// The key is absent.
    Absent,
}

impl<'a> Known<'a> {
    /// Returns the known state of a key with a value, or of an absent key.
    pub fn new(value: Option<&'a [u8]>) -> Known<'a> {
        value.map_or(Known::Absent, Known::Value)
    }

    /// Returns the value; `None` if the key is absent.
    pub fn value(self) -> Option<&'a [u8]> {
        match self {
            Known::Value(value) => Some(value),
            Known::Absent => None,
        }
    }
}

/// The change of a key by a transaction.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The key gets a value of this length in bytes.
    Value(u32),
    /// The key is removed.
    Absent,
}

/// The step of a transaction at a key.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Step {
    /// The key is being looked up.
    #[default]
    Looking,
    /// The lookup has ended: the key was found or is known to be absent.
    Found,
    /// The table contains neither the key nor a free slot for it.
    NoSlot,
    /// The key was found, and the address of its version is being read.
    Locating,
    /// The cell of a pending version and the key's slot are being read; this number of answers is
    /// outstanding.
    Asking(u8),
    /// A pending version is being marked as committed (true) or removed (false).
    Mending(bool),
    /// The key is being prepared.
    Preparing,
    /// The transaction's read of the key is valid.
    Validated,
    /// The transaction's version is linked as pending, in this buffer.
    Linked(u64),
    /// The transaction's version is committed or removed.
    Settled,
    /// The transaction lost against another one at this key.
    Refused,
    /// The shard had no free buffer.
    NoBuffer,
}

/// A key of a transaction.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Entry {
    pub step: Step,
    pub shard: u16,
    pub key_len: u32,
    /// The key's hash, and the distance from its home slot at which the lookup is.
    pub hash: u64,
    pub further: u32,
    /// True if the caller reads the key.
    pub reads: bool,
    /// True if the value must be reported when it arrives.
    pub asked: bool,
    pub change: Option<Change>,
    /// The latest committed version that the lookup read. Its address is 0 while it is unknown.
    pub latest: VersionRef,
    /// Length of the value that was found; `None` if the key is absent.
    pub value_len: Option<u32>,
    /// True if the slot never held a key.
    pub fresh: bool,
    /// Number of times that the latest version was found pending.
    pub looks: u32,
    /// Number of the transaction's round trips when the current operation began.
    pub since: u32,
    /// The header of the pending version in the way.
    pub mark: Option<Header>,
}

/// The phase that a transaction holds at a shard, which keeps buffers from reuse while the transaction may
/// access them.
pub(crate) type Hold = Option<Grace>;
