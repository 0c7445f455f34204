//! Replicated blocks: each block is a linearizable register on n = 2f + 1 replicas, of which f may fail.
//!
//! - [`prism_rs`]: multi-writer ABD by PRISM chains (PRISM paper, §7.3); a write phase takes one round trip.
//! - [`abdlock`]: multi-writer ABD by locks and standard verbs (§7.2), the baseline.
//!
//! A client machine has a window of operations in flight, each at all replicas at the same time. An
//! operation ends when a quorum of f + 1 replicas has answered; later answers are still processed. A
//! replica's CPU takes part only in set-up and repair.
//!
//! `docs/internals/stores/blocks.md` draws the layouts and explains why no acknowledged write is lost.

mod any_client;
mod grant;
mod hello;
mod machine;
mod membership;
mod numbers;
mod replica_set;
mod set;
mod slots;
mod tag;

pub mod abdlock;
pub mod prism_rs;

pub use any_client::AnyClient;
pub use grant::{Design, Grant, Layout, MAX_BLOCK, MIN_BLOCK};
pub use hello::{Hello, Purpose, Welcome};
pub use machine::Machine;
pub use membership::{Membership, MembershipError, State, View};
pub use tag::{ClientId, Tag};

use crate::Broken;

/// Maximum number of replicas.
pub const MAX_REPLICAS: usize = 7;

/// The operations of a block store.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads a block.
    Read,
    /// Writes a block.
    Write,
}

/// The identity of an operation in flight. The slot is reused after the operation has been returned.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Slot(u16);

impl Slot {
    /// Returns the slot's index, below [`ClientConfig::slots`].
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// The configuration of a client.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Number of the client. No other client, past or present, may have it.
    pub id: ClientId,
    /// Number of replicas: 2f + 1.
    pub replicas: usize,
    /// The layout of the blocks on each replica.
    pub layout: Layout,
    /// Maximum number of operations in flight.
    pub window: u16,
    /// A deliberate fault, for tests of the checkers.
    pub canary: Canary,
}

/// A deliberate fault that a checker of histories must detect.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Canary {
    /// No fault is injected.
    #[default]
    Sound,
    /// A write of an older tag overwrites a newer one.
    NoTagCheck,
    /// A READ does not write back a value that fewer than a quorum of replicas have.
    NoWriteBack,
}

impl ClientConfig {
    /// Returns f, the number of replicas that may fail.
    pub fn faults(&self) -> usize {
        self.replicas / 2
    }

    /// Returns the number of answers that an operation needs.
    pub fn quorum(&self) -> usize {
        self.replicas / 2 + 1
    }

    /// Returns the number of slots: operations in flight, and finished operations with a request at a slow
    /// replica. `ClientConfig::tails` limits the latter per replica, so f slow replicas do not block the
    /// client.
    pub fn slots(&self) -> usize {
        2 * usize::from(self.window)
    }

    /// Returns the maximum number of finished operations with a request at one replica. At the maximum, the
    /// replica gets no new requests.
    pub(crate) fn tails(&self) -> u32 {
        (u32::from(self.window) / self.faults().max(1) as u32).max(1)
    }

    /// Returns true if the configuration is valid.
    pub(crate) fn is_sound(&self) -> bool {
        let odd = self.replicas % 2 == 1 && self.replicas <= MAX_REPLICAS;
        odd && self.layout.is_sound()
            && self.window >= 1
            && self.window <= 1 << 12
            && self.faults() <= self.window.into()
    }
}

/// The reason for which an operation was not started.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The window's maximum of operations is in flight, or slow replicas still have requests of too many
    /// finished operations.
    #[error("as many operations as the window allows are in flight")]
    WindowFull,
    /// There is no such block.
    #[error("there is no such block")]
    NoSuchBlock,
    /// The value is not as long as a block.
    #[error("the value is not as long as a block")]
    WrongLength,
}

/// The result of an operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// READ: the value of the block.
    Value(&'a [u8]),
    /// WRITE: f + 1 replicas have stored the value.
    Done,
    /// Too few replicas had a free buffer for f + 1 to store the value. A WRITE may have happened or not.
    NoBuffer,
    /// WRITE: the block's tags are exhausted, after 2^44 writes.
    Exhausted,
}

/// An operation that has ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Finished<'a> {
    /// The slot of the operation, free again.
    pub slot: Slot,
    /// The kind of the operation.
    pub operation: Operation,
    /// Index of the block.
    pub block: u64,
    /// The tag that it read or wrote.
    pub tag: Tag,
    /// The result of the operation.
    pub outcome: Outcome<'a>,
    /// Number of round trips that the operation took.
    pub round_trips: u32,
}

/// A replica whose connection must be closed. Close it, then call the client's `disconnect`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Index of the replica.
    pub replica: usize,
    /// The failure of the connection.
    pub why: Broken,
}
