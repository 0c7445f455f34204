//! Transactions by FaRM's protocol (Dragojević et al., NSDI 2014; PRISM paper, §8.1): lock, validate, update. What PRISM-TX is compared with.
//!
//! Values lie in place, and a key is read by one READ. A commit locks the written keys by a compare-and-swap that checks the version in the same
//! step, validates what was only read by READs of 8 bytes, and then writes and unlocks. No server takes part in it, so what the servers'
//! logs do in the original the clients do by WRITEs: a lock travels behind the value that it is taken for, and [`recover`] ends what a dead
//! client has begun. `docs/TXN.md` draws the table, states the rules and proves them.
//!
//! **What detects a torn read**: a checksum over each record, version included. FaRM's versions in each line need a writer that changes both
//! ends of a line before the rest of it, or a DMA that writes lines whole; here a remote WRITE changes the record, in an order that nobody promises.

mod client;
mod commit;
mod config;
mod grant;
mod layout;
mod recovery;
mod shard;
mod verbs;

#[cfg(test)]
mod tests;

pub use client::Client;
pub use config::{ClientConfig, Rules};
pub use grant::Grant;
pub use recovery::recover;
pub use shard::{Shard, ShardConfig};
