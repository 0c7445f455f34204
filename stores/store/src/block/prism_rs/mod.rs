//! PRISM-RS: multi-writer ABD (Lynch and Shvartsman) with one round trip per phase (PRISM paper, §7.3).
//!
//! A replica stores ⟨tag, address⟩ for each block. The buffer at that address holds the tag, followed by the
//! value.
//!
//! - *Read phase*: an indirect READ of tag and value at one replica, READs of the tag alone at the others.
//! - *Write phase*: a chain that links a new buffer if its tag is greater.
//!
//! A READ is over after the read phase if a quorum agrees on the tag that came with the value. Otherwise the
//! client asks for the value of the newest tag, and writes it back if fewer than a quorum have it.

mod chain;
mod client;
mod flight;
mod source;
mod table;

pub use client::Client;
pub use table::Table;
