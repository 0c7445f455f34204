//! Pilaf: a 3-ary cuckoo table of self-verifying entries (§4.2, §4.3 of the paper). The paper is Mitchell,
//! Geng, Li: *Using One-Sided RDMA Reads to Build a Fast, CPU-Efficient Key-Value Store*, USENIX ATC 2013.
//!
//! A GET READs one entry, and if its hash is the key's, the object; otherwise the next of its three entries.
//! The entry carries a CRC64 of itself and one of the object. So a reader detects any mixture of old and new
//! bytes, and retries. Only the server writes; it stores an object in fresh lines first and the entry last.

mod client;
mod entry;
mod table;

pub use client::Pilaf;
pub use table::{Config, PilafTable};
