//! Transactions over keys of several shards: PRISM-TX (PRISM paper, §8), with corrected rules.
//!
//! A [`Client`] has a window of transactions. Each of them reads and writes keys and then commits or aborts.
//! A [`Shard`] is the table of one server, whose CPU takes no part in transactions.
//! `docs/internals/stores/transactions.md` draws the
//! table, states the rules and proves them.
//!
//! A key's slot (`layout.rs`) points to the buffer of its latest version, and the buffer says whether that
//! version is committed or pending. A commit (`commit.rs`) first links pending versions, in one round trip.
//! Then one compare-and-swap on the transaction's decision cell makes it committed or aborted, irrevocably.
//! A client that finds a pending version (`resolve.rs`) reads that cell and repairs the key. So a dead
//! client blocks no other.
//!
//! [`farm`] is the protocol that the paper compares with; [`Machine`] is the common interface of both.
//! [`workload`] contains the transactions that measure both.

mod any_client;
mod chains;
mod client;
mod client_config;
mod commit;
mod event;
pub mod farm;
mod grant;
mod hello;
mod incarnations;
mod layout;
mod lookup;
mod machine;
mod resolve;
mod shard;
mod timestamp;
mod transaction;
mod window;
mod work;
pub mod workload;

#[cfg(test)]
pub(crate) mod tests;

pub use any_client::{AnyClient, GrantError};
pub use client::{Client, shard_of};
pub use client_config::{ClientConfig, Rules};
pub use event::{Event, Refused};
pub use grant::Grant;
pub use hello::{Design, Granted, Hello, Limits, Welcome};
pub use incarnations::{Incarnations, Member};
pub use layout::HEADER;
pub use machine::Machine;
pub use shard::{Shard, ShardConfig};
pub use timestamp::Timestamp;
pub use transaction::{EntryId, Known, Outcome, Tx};
