//! Key-value designs: clients and servers as pure machines.
//!
//! A [`Client`] has a window of operations in flight on one queue pair. [`get`](Client::get),
//! [`put`](Client::put) and [`delete`](Client::delete) start one in a [`Slot`]; every work completion of the
//! queue pair goes to [`complete`](Client::complete), which hands back an operation when it has ended. A
//! [`Server`] owns a table in registered memory, answers calls from the completions of its queue pairs, and
//! takes no part in the READs of the one-sided designs. Both speak to the outside through [`Post`] alone.
//!
//! `stores/store/tests/over_nics.rs` drives all of it over two NICs.
//!
//! The designs differ in two places only: how a client finds a key ([`Lookup`]) and how a server keeps its
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

/// Longest key, in bytes.
pub const MAX_KEY: usize = 1 << 20;
/// Longest value, in bytes.
pub const MAX_VALUE: usize = 1 << 20;

/// What a store does for its users.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// Reads the value of a key.
    Get = 1,
    /// Stores a value under a key, new or not.
    Put = 2,
    /// Removes a key.
    Delete = 3,
    /// Lists keys, a page at a time.
    List = 4,
}
