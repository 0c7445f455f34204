//! `libremora`: PRISM and StRoM for C programs. `api/capi/include/remora/prism.h` and `strom.h` declare and
//! explain them; `docs/C.md` is the tour.
//!
//! Each function checks its arguments, calls the Rust API, and returns the result as an errno. A handle is a
//! box that begins with a word for its kind (`handle.rs`); an error becomes a number in `errno.rs`.
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
