//! PRISM-RS: multi-writer ABD (Lynch and Shvartsman) whose phases are a round trip each (PRISM paper, §7.3).
//!
//! A replica has ⟨tag, address⟩ for each block, and the tag again in front of the value in the buffer at the address. *Read phase*: an indirect
//! READ at every replica. *Write phase*: a chain that brings a new buffer in if its tag is greater. A READ whose quorum
//! agrees on the tag is over after the first; otherwise it writes back what is newest.

mod chain;
mod client;
mod flight;
mod table;

pub use client::Client;
pub use table::Table;
