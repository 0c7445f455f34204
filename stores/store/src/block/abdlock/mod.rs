//! ABDLOCK: multi-writer ABD with the verbs that all NICs have, blocks in place under locks (PRISM paper, §7.2).
//!
//! A replica has lock, tags, values and checksums of each block side by side. Four round trips: CAS of the lock at every replica, READ of the
//! tags of what is locked and of one value, WRITE, CAS back. A READ whose quorum agrees on the tag writes nothing. Who gets no quorum of
//! locks releases what it has and tries again later.

mod client;
mod flight;
mod table;
mod verbs;

pub use client::Client;
pub use table::Table;
