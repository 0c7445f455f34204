//! Stores as state machines over the requests and completions of a NIC, and the workloads that measure them.
//!
//! - [`kv`]: key-value stores. The classical designs are those that the PRISM paper compares with (SOSP'21
//!   §6): [`kv::pilaf`], [`kv::farm`] and [`kv::two_sided`]. A client machine turns an operation into work
//!   requests and completions into its result. A server machine owns the table and answers calls. Neither
//!   uses a port, a thread or a clock.
//! - [`block`]: replicated blocks (§7): PRISM-RS and a lock-based baseline.
//! - [`cache`]: memcached's text protocol over the two-sided table, for clients without Remora.
//! - [`heap`]: buffers that clients allocate by PRISM's ALLOCATE: how they are returned, and how the buffers
//!   of a dead client are recovered.
//! - [`txn`]: transactions over keys of several shards, PRISM-TX (§8).
//! - [`ycsb`]: the seeded workloads A to F of the Yahoo! Cloud Serving Benchmark.
//! - [`load`]: the parser of `key value` lines, to load real data.
//!
//! `docs/internals/stores/key-value.md` draws every layout byte by byte and explains how a torn read is
//! detected.

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
pub mod codec;
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
