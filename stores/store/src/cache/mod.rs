//! memcached's text protocol over the two-sided table, for clients that have no Remora.
//!
//! A [`Cache`] holds the items. A [`Session`] is one client's connection: [`Session::run`] takes the bytes
//! that came and appends the answers. Neither knows a socket or a clock. The values are objects of a
//! [`TwoSidedTable`](crate::kv::two_sided::TwoSidedTable). Flags, expiry, the number for `cas` and the order
//! of use lie in nodes beside the table, one for each item. When the table is full, the items that were used
//! least recently go.
//!
//! All memory is bounded at set-up: the table, the nodes, and the buffers of a session. A value on its way in
//! is written where it will be stored. One on its way out is read from there, a piece at a time.
//!
//! `docs/CACHE.md` has the commands and what differs from memcached.

mod admin;
mod arrivals;
mod attributes;
mod buckets;
mod classes;
mod command;
mod count;
mod counters;
mod dump;
mod items;
mod lru;
mod meta;
mod refused;
mod session;
mod stats;
mod store;

#[cfg(test)]
mod tests;

pub use buckets::{ANSWER, Buckets, Directory, Item, LONGEST};
pub use counters::Counters;
pub use session::Session;
pub use store::Cache;

/// Longest key, in bytes.
pub const MAX_KEY: usize = 250;
/// Longest value, in bytes.
pub const MAX_VALUE: usize = 1 << 20;
/// Longest line of a command, its end not counted; the keys of a `get` may be any number.
pub const MAX_LINE: usize = 2048;
/// Bytes that a session puts into its output at most: it waits until they are taken.
pub const OUTPUT: usize = 32 << 10;
/// The least memory for the table: the longest value, its key, and what rounding adds.
pub const MIN_MEMORY: usize = 2 << 20;

/// How large a cache is, and how it calls itself.
#[derive(Copy, Clone, Debug)]
pub struct Config {
    /// Items at most.
    pub items: u32,
    /// Seed of the hash: one that clients do not know.
    pub hash_seed: u64,
    /// What `version` answers: clients conclude from it what a server knows.
    pub version: &'static str,
    /// Remora's own version, which `stats` reports beside it.
    pub remora: &'static str,
    /// The process that `stats` names.
    pub pid: u32,
    /// The limit of connections at a time, for `stats`. The owner of the sessions enforces it.
    pub connections: u32,
    /// Seconds of silence after which that owner closes a connection, for `stats`; 0: never.
    pub idle_timeout: u32,
    /// May a client end the server?
    pub shutdown: bool,
}

impl Config {
    /// Items for so much memory, if they take 256 bytes each with their keys.
    pub fn items_for(memory: usize) -> u32 {
        u32::try_from(memory / 256).unwrap_or(u32::MAX / 4).min(u32::MAX / 4)
    }
}
