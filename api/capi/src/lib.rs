//! `libremora`: PRISM, StRoM and 1RMA for C programs. The headers `prism.h`, `strom.h` and `rma.h` in
//! `api/capi/include/remora` declare and explain the functions; `docs/guides/c.md` is the guide.
//!
//! Each function checks its arguments, calls the Rust API, and returns the result as an errno. A handle is a
//! boxed value that begins with a word for its kind (`handle.rs`); `errno.rs` converts errors to numbers.
#![allow(unsafe_code, reason = "every argument is a foreign pointer")]

mod device;
mod errno;
mod free_list;
mod handle;
mod prism;
mod queue_pair;
mod rma;
mod strom;

#[cfg(test)]
mod layout_tests;
