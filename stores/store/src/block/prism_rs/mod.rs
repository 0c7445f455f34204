//! PRISM-RS: multi-writer ABD (Lynch and Shvartsman) whose phases are a round trip each (PRISM paper, §7.3).
//!
//! A replica has ⟨tag, address⟩ for each block, and the tag again in front of the value in the buffer at the address. *Read phase*: an indirect
//! READ of tag and value at one replica, READs of the tag alone at the others. *Write phase*: a chain that brings a new buffer in if its tag is
//! greater. A READ whose quorum agrees on the tag that came with the value is over after the first; otherwise it asks for the value of
//! the newest, and writes it back if fewer than a quorum have it.

mod chain;
mod client;
mod flight;
mod source;
mod table;

pub use client::Client;
pub use table::Table;
