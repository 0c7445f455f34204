//! Key-value designs: clients and servers as pure machines.
//!
//! A [`Client`] has a window of operations in flight on one queue pair. [`get`](Client::get), [`put`](Client::put) and
//! [`delete`](Client::delete) start one in a [`Slot`]; every work completion of the queue pair goes to
//! [`complete`](Client::complete), which hands back an operation when it has ended. A [`Server`] owns a table in
//! registered memory, answers calls from the completions of its queue pairs, and takes no part in the READs of the
//! one-sided designs. Both speak to the outside through [`Post`] alone.
//!
//! `store/tests/over_nics.rs` drives all of it over two NICs.
//!
//! The designs differ in two places only: how a client finds a key ([`Lookup`]) and how a server keeps its table
//! ([`Table`]). PUT and DELETE are calls in all of them.

mod checksum;
mod client;
mod client_config;
mod extents;
mod hash;
mod lookup;
mod region;
mod rpc;
mod send_queue;
mod server;
mod session;
mod table;
mod words;
mod work_id;

pub mod farm;
pub mod pilaf;
pub mod two_sided;

#[cfg(test)]
mod tests;

pub use client::{Client, Finished, Outcome, Refused, Slot};
pub use client_config::ClientConfig;
pub use hash::hash_key;
pub use lookup::{Lookup, Read, Reads, Step};
pub use region::Registered;
pub use rpc::{HEADER as MESSAGE_HEADER, Refusal};
pub use send_queue::QueueNeeds;
pub use server::{Connection, Server, ServerConfig, ServerCounters};
pub use session::{Design, Grant, Hello, SessionError};
pub use table::{Hold, Stored, Table, TableGrant};

pub use nic::PostError;

use nic::{ReceiveRequest, WorkRequest};
use transport::Status;

/// Longest key, in bytes.
pub const MAX_KEY: usize = 1 << 20;
/// Longest value, in bytes.
pub const MAX_VALUE: usize = 1 << 20;

/// The queue pair that a machine works on, as far as the machine sees it. Whoever implements it may ring the doorbell
/// at each call or once after a batch of them.
pub trait Post {
    /// Puts a work request on the send queue.
    ///
    /// # Errors
    /// The queue is full or takes no such request; nothing was posted. With queues of the size that
    /// [`QueueNeeds`] asks for, "full" does not happen.
    fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError>;

    /// Puts a receive request on the receive queue.
    ///
    /// # Errors
    /// As [`post_send`](Post::post_send).
    fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError>;
}

/// The queue pair is of no further use to the machine.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A work request ended with this status.
    Completion(Status),
    /// A work request was not taken.
    Post(PostError),
    /// The peer sent what no correct peer sends.
    Protocol,
}

impl core::fmt::Display for Broken {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Broken::Completion(status) => write!(f, "the queue pair failed: {}", status.explain()),
            Broken::Post(error) => write!(f, "the queue pair took no request: {error}"),
            Broken::Protocol => f.write_str("the peer sent what no correct peer sends"),
        }
    }
}

impl core::error::Error for Broken {}

impl From<PostError> for Broken {
    fn from(error: PostError) -> Broken {
        Broken::Post(error)
    }
}

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
}
