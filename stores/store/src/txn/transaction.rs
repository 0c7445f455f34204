//! A transaction in a client's window, and the keys that it touches.

use super::layout::{Header, VersionRef};
use super::timestamp::Timestamp;
use crate::Broken;
use crate::heap::Phase as Grace;

/// A transaction: an index below the window. It belongs to the program until the client reports its outcome.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Tx(pub(super) u16);

impl Tx {
    /// As an index, below the window.
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// A key of a transaction: they are numbered in the order in which it named them.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct EntryId(pub(super) u16);

impl EntryId {
    /// As an index.
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// How a transaction ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All of it happened, at this time; 0 for FaRM, which has no timestamps.
    Committed(Timestamp),
    /// Nothing of it happened, because of another transaction or because the program aborted it. A new
    /// attempt may commit.
    Aborted,
    /// Nothing of it happened: a shard has no buffer left.
    NoBuffer,
    /// Nothing of it happened: there is no slot for a new key.
    TableFull,
    /// Nothing of it happened: a value is longer than this client's buffers.
    TooLong,
    /// A connection failed before it could have committed.
    Failed(Broken),
    /// A connection failed while it committed: all of it happened, or nothing.
    Unknown(Broken),
}

/// The phase of a transaction.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// There is none.
    #[default]
    Idle,
    /// It reads and writes.
    Open,
    /// Its owner wants it to commit; some keys are still being looked for.
    Closing,
    /// It validates its reads, and puts its versions in as pending.
    Preparing,
    /// Its cell is being decided.
    Deciding,
    /// It has committed; some versions are still marked as pending.
    Finishing,
    /// It takes its pending versions out.
    Undoing(Outcome),
    /// It ends as soon as no operation is under way.
    Dropping(Outcome),
}

/// The state of one transaction of the window.
#[derive(Copy, Clone, Debug, Default)]
pub struct Transaction {
    pub phase: Phase,
    /// Completions to come.
    pub under_way: u32,
    pub at: Timestamp,
    /// The first written key's shard.
    pub home: u16,
    /// It commits by its only compare-and-swap.
    pub one_step: bool,
    /// It lost against another transaction.
    pub lost: bool,
    /// Round trips, one behind the other.
    pub trips: u32,
    /// Pending versions of others that it repaired.
    pub resolved: u32,
}

/// What a transaction knows of a key.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Known<'a> {
    /// It has this value.
    Value(&'a [u8]),
    /// It is absent.
    Absent,
}

impl<'a> Known<'a> {
    /// A key with a value, or an absent one.
    pub fn new(value: Option<&'a [u8]>) -> Known<'a> {
        value.map_or(Known::Absent, Known::Value)
    }

    /// The value; `None` if the key is absent.
    pub fn value(self) -> Option<&'a [u8]> {
        match self {
            Known::Value(value) => Some(value),
            Known::Absent => None,
        }
    }
}

/// What a transaction does to a key.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A value of so many bytes.
    Value(u32),
    /// The key is absent from then on.
    Absent,
}

/// The step of a transaction at a key.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Step {
    /// It is being looked for.
    #[default]
    Looking,
    /// It was found, or its absence was.
    Found,
    /// There is neither the key nor a slot for it.
    NoSlot,
    /// It was found, and where is being asked.
    Locating,
    /// The cell of a pending version and the key's slot are being read: so many answers are to come.
    Asking(u8),
    /// A pending version is being made committed (true), or taken out.
    Mending(bool),
    /// The transaction is being prepared here; no answer, then the first of two.
    Preparing,
    /// Its read here is valid.
    Validated,
    /// Its version is in, pending, in this buffer.
    Linked(u64),
    /// Its version is committed, or removed: nothing is left to do.
    Settled,
    /// It lost against another transaction here.
    Refused,
    /// There was no buffer.
    NoBuffer,
}

/// A key of a transaction.
#[derive(Copy, Clone, Debug, Default)]
pub struct Entry {
    pub step: Step,
    pub shard: u16,
    pub key_len: u32,
    /// The key's hash, and how many slots behind its first one it looks.
    pub hash: u64,
    pub further: u32,
    /// The program asked for its value.
    pub reads: bool,
    /// The program waits for the value.
    pub asked: bool,
    pub change: Option<Change>,
    /// The version that was found. Its address is 0 while it is not known.
    pub found: VersionRef,
    /// Length of its value, if the key was there.
    pub value_len: Option<u32>,
    /// The slot never had a key.
    pub fresh: bool,
    /// So often it was found pending.
    pub looks: u32,
    /// Round trips of the transaction when the present operation began.
    pub since: u32,
    /// The pending version in the way.
    pub mark: Option<Header>,
}

/// What a transaction holds at a shard: what it may touch there does not come to others meanwhile.
pub type Hold = Option<Grace>;
