//! `libremora-paths.so`: a preload library by which programs see the device below `/sys` and `/dev`.
//!
//! It stands before the functions of the C library that take a path. A path of the device's is rewritten to
//! one in the tree that the broker wrote (`api/broker/src/paths.rs`); every other path costs one comparison.
//! Where the variable `REMORA_PATHS` is missing, nothing is rewritten.
//!
//! | file | holds |
//! |---|---|
//! | `own.rs` | which paths are the device's |
//! | `rewrite.rs` | where such a path leads, also one that is relative to a folder |
//! | `next.rs` | the functions that come next: the C library's |
//! | `counter.rs` | a counter's file, from the broker |
//! | `foreign.rs` | one line about a libibverbs or librdmacm that is not Remora's |
//! | `hook/` | the functions that programs call |
//!
//! Programs call these functions in signal handlers and in forked children. So nothing here allocates or
//! locks, and the standard library's files are not used: they would come back here.
#![allow(unsafe_code, reason = "every argument is a foreign pointer")]
#![cfg_attr(test, allow(dead_code, reason = "the functions that programs call are left out"))]
#![allow(
    clippy::missing_safety_doc,
    reason = "the manual pages of the C library say what each function asks for"
)]

mod counter;
#[cfg(not(test))]
mod foreign;
// A test's own calls stay the C library's.
#[cfg(not(test))]
mod hook;
mod next;
mod own;
mod rewrite;
