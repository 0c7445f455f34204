//! The memory room: protection domains, regions, keys, access checks, and the only code that touches the bytes
//! which application and NIC race on.
//!
//! DMA is not Rust memory access (DESIGN §2.5). The application reads and writes its buffers whenever it likes, and
//! so does the NIC. No reference to such bytes is ever made here: they move by machine instructions that the
//! compiler does not look into (`copy`), or by atomics.
//!
//! Three things to know before the rest:
//!
//! - [`Bytes`] is a block of memory; [`Table`] turns ranges of blocks into regions with a [`Key`].
//! - [`Biased`] is the lock around an engine. Entering it begins a *pass* and lends a [`Mem`], the right to touch
//!   registered memory until the pass ends. [`Mem::check`] turns (pd, key, address, length, rights) into a [`Span`].
//! - [`Table::deregister`] returns only when every pass that could still hold a span of the region is over.
#![allow(unsafe_code, reason = "racing memory is this room's purpose; nowhere else may touch it")]

mod access;
mod barrier;
mod biased;
mod block;
mod bytes;
mod copy;
mod entry;
mod key;
mod mem;
mod on_nic;
mod pass;
mod span;
mod sync;
mod table;
mod wide;

pub use access::{Access, AccessError, Error, Pd};
pub use biased::{Biased, Guard};
pub use bytes::Bytes;
pub use key::Key;
pub use mem::Mem;
pub use span::Span;
pub use table::{Config, Range, Table};
