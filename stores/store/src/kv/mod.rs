//! Key-value designs: clients and servers that are driven by completions and do no input or output
//! themselves.
//!
//! A [`Client`] has a window of operations in flight on one queue pair. [`get`](Client::get),
//! [`put`](Client::put) and [`delete`](Client::delete) start an operation in a [`Slot`]. Every work
//! completion of the queue pair goes to [`complete`](Client::complete), which returns the operation that has
//! ended. A [`Server`] owns a table in registered memory, and answers calls from the completions of its
//! queue pairs. It takes no part in the READs of the one-sided designs. Both post requests only through
//! [`Post`].
//!
//! `stores/store/tests/over_nics.rs` drives clients and servers over two NICs.
//!
//! The designs differ in two places: how a client finds a key ([`Lookup`]), and how a server stores its
//! table ([`Table`]). PUT and DELETE are calls in all of them.

pub(crate) mod checksum;
mod client;
mod client_config;
mod cursor;
mod extents;
mod hash;
mod listing;
mod lookup;
mod machine;
mod moves;
mod replicas;
mod rpc;
mod server;
mod session;
mod table;

pub mod farm;
pub mod pilaf;
pub mod prism;
pub mod strom;
pub mod two_sided;

#[cfg(test)]
pub(crate) mod tests;

pub use crate::post::{Broken, Post};
pub use crate::region::Registered;
pub use crate::send_queue::{Account, CommandSlots, QueueNeeds, SendQueue};
pub use client::{Client, Finished, Outcome, Refused, Slot};
pub use client_config::ClientConfig;
pub use cursor::Cursor;
pub use hash::hash_key;
pub use listing::Page;
pub use lookup::{Ask, Lookup, Read, Reads, Step};
pub use machine::Machine;
pub use moves::Moves;
pub use replicas::Replicas;
pub use rpc::{HEADER as MESSAGE_HEADER, Refusal};
pub use server::{Connection, Server, ServerConfig, ServerCounters};
pub use session::{Design, Grant, Hello, SessionError};
pub use table::{Hold, Stored, Table, TableGrant};

pub use remora_nic::PostError;

/// Maximum key length in bytes.
pub const MAX_KEY: usize = 1 << 20;
/// Maximum value length in bytes.
pub const MAX_VALUE: usize = 1 << 20;

/// The operations of a key-value store.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// Reads the value of a key.
    Get = 1,
    /// Stores a value under a new or existing key.
    Put = 2,
    /// Removes a key.
    Delete = 3,
    /// Lists keys, one page per operation.
    List = 4,
}
