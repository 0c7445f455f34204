//! ABDLOCK: multi-writer ABD with standard RDMA verbs; blocks are updated in place under locks (PRISM paper,
//! §7.2).
//!
//! A replica stores the lock, tags, values and checksums of each block contiguously. An operation takes four
//! round trips:
//!
//! 1. CAS of the lock at every replica.
//! 2. READ of the tags at the locked replicas, and of one value.
//! 3. WRITE.
//! 4. CAS of the lock to release it.
//!
//! A READ whose quorum agrees on the tag writes nothing. A client that gets no quorum of locks releases
//! those that it has and retries later.

mod client;
mod flight;
mod table;
mod verbs;

pub use client::Client;
pub use table::Table;
