//! The stores on the command line: servers, clients, the demo, and measuring.
//!
//! | module | holds |
//! |---|---|
//! | [`kv`], [`cache`], [`block`], [`txn`], `rma` | `remora serve NAME` and `remora NAME` |
//! | [`demo`], [`chains`] | one table read in every way; lookups by chains |
//! | [`measure`] | running and timing operations of a store |
//! | [`conduct`], [`designs`], [`transport`] | options that servers and clients share |

#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, reason = "a closed pipe ends the program quietly: `print`")
)]

pub mod advice;
pub mod block;
pub mod cache;
pub mod chains;
pub mod conduct;
pub mod demo;
pub mod designs;
pub mod kv;
mod lines;
pub mod measure;
mod program;
mod rma;
pub mod transport;
pub mod txn;

pub use program::start;
