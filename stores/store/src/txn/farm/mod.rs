//! Transactions by FaRM's protocol (Dragojević et al., NSDI 2014; PRISM paper, §8.1): lock, validate, update.
//! The baseline that PRISM-TX is compared with.
//!
//! As in §8.1, two READs read a key: one of the index and one of its object. READs also validate what was
//! only read. Lock and update are calls, which the shard's program executes. A client's lock comes as a WRITE
//! into its log, with the value that it is taken for. The call is the 32 bits beside it. So the update only
//! says that it is time, and [`recover`] can end what a dead client has begun. `docs/TXN.md` draws the table,
//! states the rules and proves them.
//!
//! **What detects a torn read**: a checksum over each record, version included. FaRM's versions in each line
//! need READs that come line by line, in an order that this NIC does not guarantee.

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
