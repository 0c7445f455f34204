//! PRISM-KV (PRISM paper, §6): GET, PUT and DELETE without the server's CPU.
//!
//! A [`slot`](TableSlot) of the hash table points to an *object*: a header, a key and a value in a buffer.
//! The buffer does not change while the slot points to it. A GET is one bounded READ through the slot. A PUT
//! finds the slot by such a READ, unless the client [remembers](ClientConfig::known) it. Then the PUT is one
//! chain, which allocates a buffer and swaps its address into the slot. A DELETE swaps the object out.
//!
//! A slot belongs to one hash for the lifetime of the table. Its generation changes when its object is
//! deleted or a new one is inserted. The generation stays when one object replaces another of the same key
//! (footnote 2 of the paper). `docs/reference/prism.md` explains why a key never exists twice, and what a
//! failed CAS
//! means.

mod chain;
mod check;
mod client;
mod client_config;
mod flight;
mod grant;
mod mover;
mod moves;
mod object;
mod scan;
mod slot;
mod slot_cache;
mod table;
mod tables;
mod walk;

#[cfg(test)]
mod tests;

pub use client::Client;
pub use client_config::ClientConfig;
pub use grant::Grant;
pub use mover::{MovePolicy, Mover, MoverCounters};
pub use object::HEADER;
pub use scan::Scan;
pub use slot::{SLOT, TableSlot};
pub use table::{Config, Loader, PrismTable};
