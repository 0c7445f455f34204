//! FaRM's hash table (Dragojević, Narayanan, Hodson, Castro: *FaRM: Fast Remote Memory*, NSDI 2014, §6.2):
//! chained associative hopscotch hashing.
//!
//! A bucket is a cache line of H/2 = 3 slots. A key lies in its home bucket or the next one. So one READ of
//! two lines returns its whole neighbourhood of H = 6 slots; the object is a second READ. A new key for which
//! hopping frees no slot goes into a block chained to its home bucket. Such a key takes a third READ.
//!
//! **What detects a torn read**: versions in every line (§4.3 of the paper), no checksums. A line holds its
//! version twice, in its first and in its last four bytes. The paper relies on the DMA of a whole line being
//! atomic; a software NIC copies a line word by word. Copies run upwards (or downwards) through a line; lines
//! may be copied in any order and at any time. `line` says why that suffices.

mod bucket;
mod client;
mod line;
mod table;

pub use client::Farm;
pub use table::{Config, FarmTable};
