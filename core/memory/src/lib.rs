//! Registered memory: protection domains, regions, keys, access checks, and the code that copies bytes
//! which the application and the NIC access at the same time.
//!
//! DMA is not a Rust memory access: the application and the NIC read and write the same buffers at any
//! time, without synchronisation. This crate therefore never makes a reference to such bytes. Bytes move by
//! inline assembly, which the compiler does not look into (`copy`), or by atomics.
//!
//! The main types:
//!
//! - [`Bytes`] is a block of memory; [`Table`] turns ranges of blocks into regions with a [`Key`].
//! - [`Biased`] is the lock around an engine. Entering the lock begins a *pass* and lends a [`Mem`], the
//!   right to touch registered memory until the pass ends. [`Mem::check`] turns (pd, key, address, length,
//!   rights) into a [`Span`].
//! - [`Table::deregister`] returns only when every pass that could still hold a span of the region has
//!   ended.
//! - A page of a region may be unmapped at any time: [`page_fault`] turns the CPU's fault into
//!   [`AccessError::PageFault`].
//!
//! ```
//! use remora_memory::{Access, AccessError, Biased, Bytes, Config, Range, Table};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let table = Arc::new(Table::new(Config { key_seed: 0x5eed, ..Config::default() })?);
//! let pd = table.alloc_pd()?;
//! let buffer = Bytes::heap(4096)?;
//! let key = table.register(pd, &[Range::at(&buffer, 0)], Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//!
//! let engine = Biased::new(&table, 0u64); // the engine's own state
//! {
//!     let mut pass = engine.enter();
//!     let (writes, mem) = pass.parts();
//!     assert_eq!(mem.check(pd, key, 100, 5, Access::REMOTE_WRITE)?.write(b"hello"), 5);
//!     *writes += 1;
//!     let beyond = mem.check(pd, key, 4095, 2, Access::REMOTE_WRITE);
//!     assert_eq!(beyond.unwrap_err(), AccessError::OutOfBounds);
//! }
//! let mut seen = [0; 5];
//! buffer.read(100, &mut seen)?;
//! assert_eq!(&seen, b"hello");
//! table.deregister(key)?;
//! # Ok(())
//! # }
//! ```
#![allow(unsafe_code, reason = "racing memory is this crate's purpose; nowhere else may touch it")]

mod access;
mod barrier;
mod biased;
mod block;
mod bytes;
mod copy;
mod entry;
mod fork;
mod key;
#[cfg(all(target_os = "linux", not(miri)))]
mod mapping;
mod mem;
mod null;
mod on_nic;
pub mod page_fault;
mod pass;
mod scratch;
mod span;
mod stripes;
mod sync;
mod table;
mod update;
mod wide;
mod window;
mod word;

pub use access::{Access, AccessError, Error, Pd};
pub use biased::{Biased, Guard};
pub use bytes::Bytes;
pub use fork::ForkMark;
pub use key::{Key, permute};
pub use mem::Mem;
pub use pass::Reentered;
pub use scratch::Scratch;
pub use span::{Lines, Span, prefetch, settle};
pub use table::{Addresses, Config, MemoryCommand, MemoryReply, Range, Table, TableChange, TableObserver};
pub use update::Width;
pub use window::{BindError, Binding, Owner, WindowType};
