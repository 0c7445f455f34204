//! Buffers that clients take by PRISM's ALLOCATE: how they come back, and what is done when a client dies.
//!
//! A server lays its buffers out in size [`Class`]es, a free list each. The server's program takes no part when a client takes
//! a buffer, links it into the store's table, or unlinks another one: whoever unlinks a buffer, or does not get its own
//! in, says so in a message of [`Returns`], and the [`Keeper`] posts it again. What operations of others may still read is the
//! NIC's care (`docs/PRISM.md`, free lists).
//!
//! # Dead clients
//! A client that dies takes buffers with it: taken and not linked, or unlinked and not told. They are those that are neither free,
//! nor reachable from the table, nor in the hands of a living client. The [`Keeper`] finds them by two periods of grace:
//!
//! 1. *Suspect* is what is out and not reachable. Then every living client is told a number, and says so when each operation that it
//!    had in flight has ended and what it had to return is returned. A suspect in the hands of a living client has by then been posted,
//!    or linked: one that is posted is no suspect any more.
//! 2. Of the suspects, those that are reachable now are none. Each client is told another number. One that was linked after the
//!    first look and unlinked before the second has been posted when all have answered.
//!
//! What is left is posted. The table is looked at before the number goes out, so a buffer that is linked or unlinked during the
//! look is in the hands of an operation that the number waits for. A buffer that goes from one place of the table to another meanwhile must go
//! forward in the order of the look, and be in its new place before it leaves the old one.
//!
//! The queue pair of a dead client must be gone before the first look, so a sweep begins anew when another client dies. A client that
//! does not answer in time is to be treated as dead: its queue pair is ended, and when it comes back it finds that.

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

/// The free lists of a server's NIC, as far as the keeper sees them.
pub trait Lists {
    /// Posts a buffer of a class.
    ///
    /// # Errors
    /// The list takes no more.
    fn post_buffer(&mut self, class: &Class, address: u64) -> Result<(), PostError>;

    /// Which buffers of a class are neither free nor resting: bit 0 of the first word is buffer `first`, a multiple of 64. Bits beyond
    /// the last buffer are 0.
    fn out(&mut self, class: &Class, first: u32, bits: &mut [u64]);
}

/// A table whose entries lead to buffers.
pub trait Reachable {
    /// Entries.
    fn entries(&self) -> usize;

    /// Tells the addresses of the buffers that an entry leads to. Others, 0 for instance, are ignored.
    fn buffers(&self, entry: usize, found: &mut dyn FnMut(u64));
}
