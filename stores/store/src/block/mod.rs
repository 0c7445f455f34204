//! Replicated blocks: a linearizable register a block, on n = 2f + 1 replicas, of which f may fail.
//!
//! - [`prism_rs`]: multi-writer ABD by PRISM's chains (PRISM paper, §7.3): a write phase is one round trip.
//! - [`abdlock`]: the same by locks and plain verbs (§7.2), what it is compared with.
//!
//! A client machine has a window of operations in flight, each at all replicas at once; it ends when a quorum
//! of f + 1 has answered, and what the others still say is taken in later. A replica's CPU takes part in
//! set-up and repair only.
//!
//! `docs/BLOCK.md` draws the layouts and says why no acknowledged write is lost.

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
pub use grant::{Design, Grant, Layout};
pub use hello::{Hello, Purpose, Welcome};
pub use machine::Machine;
pub use membership::{Membership, MembershipError, State, View};
pub use tag::{ClientId, Tag};

use crate::Broken;

/// Shortest block, in bytes.
pub const MIN_BLOCK: u32 = 512;
/// Longest block, in bytes.
pub const MAX_BLOCK: u32 = 64 << 10;
/// Most replicas.
pub const MAX_REPLICAS: usize = 7;

/// What a store of blocks does for its users.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads a block.
    Read,
    /// Writes a block.
    Write,
}

/// An operation in flight: its own until the operation is handed back.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Slot(u16);

impl Slot {
    /// As an index, below [`ClientConfig::slots`].
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// How large a client is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Its number: no other client, of now or before, has it.
    pub id: ClientId,
    /// Replicas: 2f + 1.
    pub replicas: usize,
    /// What they store.
    pub layout: Layout,
    /// Operations in flight at most.
    pub window: u16,
    /// How it is broken on purpose.
    pub canary: Canary,
}

/// A fault on purpose: what a checker of histories must find.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Canary {
    /// None.
    #[default]
    Sound,
    /// What is older overwrites what is newer.
    NoTagCheck,
    /// A READ does not bring to a quorum what it found at fewer.
    NoWriteBack,
}

impl ClientConfig {
    /// Replicas that may fail.
    pub fn faults(&self) -> usize {
        self.replicas / 2
    }

    /// Answers that an operation needs.
    pub fn quorum(&self) -> usize {
        self.replicas / 2 + 1
    }

    /// Operations that are in flight or over, with a request to a slow replica under way. A slow one has as
    /// many as `ClientConfig::tails` says: f slow ones stop nobody.
    pub fn slots(&self) -> usize {
        2 * usize::from(self.window)
    }

    /// Operations that may be over while a replica still has a request of theirs; with that many it gets no
    /// new ones.
    pub(crate) fn tails(&self) -> u32 {
        (u32::from(self.window) / self.faults().max(1) as u32).max(1)
    }

    /// Are the numbers possible?
    pub(crate) fn is_sound(&self) -> bool {
        let odd = self.replicas % 2 == 1 && self.replicas <= MAX_REPLICAS;
        odd && self.layout.is_sound()
            && self.window >= 1
            && self.window <= 1 << 12
            && self.faults() <= self.window.into()
    }
}

/// An operation was not started.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// As many operations as the window allows are in flight, or slow replicas hold up too many that are
    /// over.
    WindowFull,
    /// There is no such block.
    NoSuchBlock,
    /// The value is not as long as a block.
    WrongLength,
}

impl core::fmt::Display for Refused {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Refused::WindowFull => "as many operations as the window allows are in flight",
            Refused::NoSuchBlock => "there is no such block",
            Refused::WrongLength => "the value is not as long as a block",
        })
    }
}

impl core::error::Error for Refused {}

/// How an operation ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// READ: what the block holds.
    Value(&'a [u8]),
    /// WRITE: f + 1 replicas have it.
    Done,
    /// So many replicas have no buffer that f + 1 could not take it. A WRITE may have been done or not.
    NoBuffer,
    /// WRITE: the block's time has run out: it was written 2^44 times.
    Exhausted,
}

/// An operation that has ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Finished<'a> {
    /// Where it was; free again.
    pub slot: Slot,
    /// What it was.
    pub operation: Operation,
    /// On which block.
    pub block: u64,
    /// The tag that it read or wrote.
    pub tag: Tag,
    /// How it ended.
    pub outcome: Outcome<'a>,
    /// Round trips that it took.
    pub round_trips: u32,
}

/// A replica's connection is of no further use: end it, then tell the machine by its `disconnect`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Which.
    pub replica: usize,
    /// Why.
    pub why: Broken,
}
