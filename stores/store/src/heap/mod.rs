//! Buffers that clients take by PRISM's ALLOCATE: how they come back, and what happens when a client dies.
//!
//! A server lays its buffers out in size [`Class`]es, a free list each. Clients take a buffer, link it into
//! the store's table, or unlink another one without the server's program. A client that unlinks a buffer, or
//! cannot link its own, returns it in a message of [`Returns`], and the [`Keeper`] posts it. The NIC protects
//! buffers that operations of others may still read (`docs/reference/prism.md`, free lists).
//!
//! # Dead clients
//! A client that dies leaks buffers: taken and not linked, or unlinked and not returned. They are neither
//! free, nor reachable from the table, nor held by a living client. The [`Keeper`] finds them by two grace
//! periods:
//!
//! 1. A *suspect* is a buffer that is out and not reachable. The keeper sends a number to every living
//!    client. Each answers when the operations that it had in flight have ended and their buffers are
//!    returned. By then a suspect that a living client held has been posted or linked. One that is posted is
//!    no longer a suspect.
//! 2. Suspects that are reachable now are dropped. Each client gets a second number. A buffer that was linked
//!    after the first look and unlinked before the second has been posted when all have answered.
//!
//! The remaining suspects are posted. The keeper reads the table before it sends the number. So a buffer that
//! is linked or unlinked during the look is held by an operation that the number waits for. A buffer may move
//! from one entry of the table to another. It must then move forward in the order of the look, and be in its
//! new entry before it leaves the old one.
//!
//! The queue pair of a dead client must have ended before the first look, so a sweep starts over when another
//! client dies. Treat a client that does not answer in time as dead: end its queue pair. It sees that when it
//! comes back.

mod bits;
mod class;
mod keeper;
mod message;
mod returns;
mod sweep;

#[cfg(test)]
mod tests;

pub use class::{Class, Classes, MAX_CLASSES};
pub use keeper::{Keeper, KeeperConfig, KeeperCounters, Peer};
pub use message::{LONGEST as LONGEST_MESSAGE, MOST as MOST_RETURNED};
pub use returns::{Phase, Returns};
pub use sweep::Stage;

use remora_nic::PostError;

/// The free lists of a server's NIC, as the keeper uses them.
pub trait Lists {
    /// Posts a buffer to the free list of its class.
    ///
    /// # Errors
    /// The list is full.
    fn post_buffer(&mut self, class: &Class, address: u64) -> Result<(), PostError>;

    /// Sets the bits of the buffers of a class that are neither on the free list nor resting (returned, but
    /// still protected from reuse by the NIC). Bit 0 of the first word is buffer `first`, a multiple of 64.
    /// Bits beyond the last buffer are 0.
    fn out(&mut self, class: &Class, first: u32, bits: &mut [u64]);
}

/// A table whose entries point to buffers.
pub trait Reachable {
    /// Returns the number of entries.
    fn entries(&self) -> usize;

    /// Calls `report` with the addresses of the buffers that an entry points to. Addresses that are no
    /// buffers, 0 for instance, are ignored.
    fn buffers(&self, entry: usize, report: &mut dyn FnMut(u64));
}
