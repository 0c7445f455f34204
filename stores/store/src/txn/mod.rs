//! Transactions over keys of several shards: PRISM-TX (PRISM paper, §8), with rules that hold.
//!
//! A [`Client`] has a window of transactions, each of which reads and writes keys and then commits or not; a [`Shard`] is the table of one
//! server, whose program takes no part in any of it. `docs/TXN.md` draws the table, states the rules and proves them.
//!
//! Heads up: a key's slot (`layout.rs`) leads to the buffer of its latest version, and the buffer says whether that version is committed or
//! pending. A commit (`commit.rs`) first puts pending versions in, in one round trip; then one compare-and-swap on the transaction's
//! decision cell makes it committed or aborted, for good and for everybody. Whoever is held up by a pending version (`resolve.rs`) asks
//! that cell and puts the key in order, so no client that died blocks anybody.
//!
//! [`farm`] is the protocol that the paper compares with; [`Machine`] is what the two have in common.
//! [`workload`] has the transactions that both are measured with.

mod chains;
mod client;
mod client_config;
mod commit;
pub mod farm;
mod grant;
mod hello;
mod layout;
mod lookup;
mod machine;
mod resolve;
mod roll;
mod shard;
mod timestamp;
mod transaction;
mod window;
pub mod workload;

#[cfg(test)]
pub(crate) mod tests;

pub use client::{Client, Event, Refused, shard_of};
pub use client_config::{ClientConfig, Rules};
pub use grant::Grant;
pub use hello::{Design, Granted, Hello, Limits, Welcome};
pub use layout::HEADER;
pub use machine::{AnyClient, Machine, Misfit};
pub use roll::{Member, Roll};
pub use shard::{Shard, ShardConfig};
pub use timestamp::Timestamp;
pub use transaction::{EntryId, Outcome, Tx};
