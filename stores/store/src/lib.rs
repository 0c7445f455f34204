//! The `store` crate: stores as pure machines over the NIC's requests and completions, and the workloads that
//! measure them.
//!
//! - [`kv`]: the classical designs that the PRISM paper compares with (SOSP'21 §6): [`kv::pilaf`],
//!   [`kv::farm`] and [`kv::two_sided`]. A client machine turns an operation into work requests and
//!   completions into its result. A server machine owns the table and answers calls. Neither knows a port, a
//!   thread or a clock.
//! - [`block`]: replicated blocks (§7): PRISM-RS and the baseline with locks.
//! - [`cache`]: memcached's text protocol over the two-sided table, for clients that have no Remora.
//! - [`heap`]: buffers that clients take by PRISM's ALLOCATE, how they come back, and what happens when a
//!   client dies.
//! - [`txn`]: transactions over keys of several shards, PRISM-TX (§8).
//! - [`ycsb`]: the workloads A to F of the Yahoo! Cloud Serving Benchmark, seeded.
//! - [`load`]: the parser of `key value` lines, to load real data.
//!
//! `docs/KV.md` draws every layout byte by byte and says what detects a torn read.

#![allow(
    clippy::too_many_arguments,
    reason = "a request needs much state at once; a struct made for one call hides which parts a function uses"
)]

pub mod block;
pub mod cache;
pub mod heap;
pub mod kv;
pub mod load;
pub mod txn;
pub mod ycsb;

mod backoff;
mod post;
mod random;
mod region;
mod send_queue;
mod words;
mod work_id;

pub use post::{Broken, Connections, Post, PostPrism};
pub use random::Random;
pub use region::Registered;
pub use remora_nic::PostError;
pub use send_queue::QueueNeeds;
