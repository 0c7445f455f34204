//! `libremora`: PRISM and StRoM for C programs, as `api/capi/include/remora/prism.h` and `strom.h` declare and explain them. `docs/C.md` is the tour.
//!
//! Each function looks at what it was given, calls the Rust API, and says how it went as an errno. A handle is a box that begins
//! with a word of its kind (`handle.rs`); what can go wrong becomes a number in `errno.rs`.
#![allow(unsafe_code, reason = "every argument is a foreign pointer")]

mod device;
mod errno;
mod free_list;
mod handle;
mod prism;
mod queue_pair;
mod strom;

#[cfg(test)]
mod layout_tests;
