//! `libremora-paths.so`: a preload library through which programs see the device below `/sys` and `/dev`.
//!
//! The library intercepts the functions of the C library that take a path. It rewrites a path of the device
//! to a path in the tree that the broker wrote (`api/broker/src/paths.rs`); every other path costs one
//! comparison. Without the variable `REMORA_PATHS` the library rewrites nothing.
//!
//! | file | contents |
//! |---|---|
//! | `own.rs` | the test if a path belongs to the device |
//! | `rewrite.rs` | the rewritten path, also for a path relative to a folder |
//! | `next.rs` | the functions that come next, which are usually the C library's |
//! | `counter.rs` | access to counter files through the broker |
//! | `foreign.rs` | the warning about a libibverbs or librdmacm that is not Remora's |
//! | `hook/` | the functions that programs call |
//!
//! Programs call these functions in signal handlers and in forked children. The code therefore neither
//! allocates nor locks, and does not use the standard library's files, which would call these functions.
#![allow(unsafe_code, reason = "every argument is a foreign pointer")]
#![cfg_attr(test, allow(dead_code, reason = "the functions that programs call are left out"))]
#![allow(
    clippy::missing_safety_doc,
    reason = "the manual pages of the C library say what each function asks for"
)]

mod counter;
#[cfg(not(test))]
mod foreign;
// Left out of unit tests, so that their own calls go to the C library.
#[cfg(not(test))]
mod hook;
mod next;
mod own;
mod rewrite;
