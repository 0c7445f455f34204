//! Transactions by FaRM's protocol (Dragojević et al., NSDI 2014; PRISM paper, §8.1): lock, validate,
//! update. This is the baseline for PRISM-TX.
//!
//! As in §8.1, two READs read a key: one of the index and one of its object. READs also validate keys that
//! were only read. Lock and update are calls, which the shard's program executes. A client requests a lock
//! by a WRITE of a log entry, which contains the new value, with immediate data. So an update request needs
//! no data, and [`recover`] can end the transactions of a dead client.
//! `docs/internals/stores/transactions.md` draws
//! the table, states
//! the rules and proves them.
//!
//! **What detects a torn read**: a checksum over each record, including its version. FaRM's versions in each
//! line would need READs that copy line by line, an order that this NIC does not guarantee.

mod calls;
mod client;
mod commit;
mod config;
mod grant;
mod layout;
mod recovery;
mod serving;
mod shard;
mod verbs;
mod work;

#[cfg(test)]
mod tests;

pub use client::Client;
pub use config::{ClientConfig, Rules};
pub use grant::Grant;
pub use recovery::recover;
pub use serving::Caller;
pub use shard::{Shard, ShardConfig};
