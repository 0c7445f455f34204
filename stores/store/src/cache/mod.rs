//! memcached's text protocol over the two-sided table, for clients without Remora.
//!
//! A [`Cache`] contains the items. A [`Session`] is one client's connection: [`Session::run`] takes the
//! bytes that were received and appends the answers. Neither uses a socket or a clock. The values are
//! objects of a [`TwoSidedTable`](crate::kv::two_sided::TwoSidedTable). Flags, expiry, the number for `cas`
//! and the order of use are in nodes beside the table, one per item. When the table is full, the least
//! recently used items are evicted.
//!
//! All memory is bounded at set-up: the table, the nodes, and the buffers of a session. A value that is
//! being received is kept in pieces until it is complete. A value that is being sent is read from the table,
//! a piece at a time.
//!
//! `docs/guides/cache.md` lists the commands and the differences from memcached.

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

/// Maximum key length in bytes.
pub const MAX_KEY: usize = 250;
/// Maximum value length in bytes.
pub const MAX_VALUE: usize = 1 << 20;
/// Maximum length of a command line, without its end. The line of a `get` may be longer, with any number of
/// keys.
pub const MAX_LINE: usize = 2048;
/// Maximum number of bytes in a session's output. When it is reached, the session waits until the output is
/// sent.
pub const OUTPUT: usize = 32 << 10;
/// Minimum memory for the table: the longest value, its key, and rounding.
pub const MIN_MEMORY: usize = 2 << 20;

/// The configuration of a cache.
#[derive(Copy, Clone, Debug)]
pub struct Config {
    /// Maximum number of items.
    pub items: u32,
    /// Seed of the key hash, which clients must not know.
    pub hash_seed: u64,
    /// The answer to `version`. Clients deduce the supported commands from it.
    pub version: &'static str,
    /// Remora's own version, for `stats`.
    pub remora: &'static str,
    /// The process id, for `stats`.
    pub pid: u32,
    /// Maximum number of connections, for `stats`. The owner of the sessions enforces it.
    pub connections: u32,
    /// Seconds without a byte in either direction after which the owner closes a connection, for `stats`;
    /// 0 for never.
    pub idle_timeout: u32,
    /// True if a client may end the server.
    pub shutdown: bool,
}

impl Config {
    /// Returns the number of items for this memory, if they take 256 bytes each with their keys.
    pub fn items_for(memory: usize) -> u32 {
        u32::try_from(memory / 256).unwrap_or(u32::MAX / 4).min(u32::MAX / 4)
    }
}
