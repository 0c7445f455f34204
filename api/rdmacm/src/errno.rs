//! Errors of others as an errno.

pub use remora_abi::errno::{minus_one, pointer, set};
use std::ffi::c_int;
use std::io;

/// The calling thread's errno.
pub fn last() -> c_int {
    of_io(&io::Error::last_os_error())
}

/// The errno of an error of the broker's client.
pub fn of_io(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or(libc::EIO)
}
