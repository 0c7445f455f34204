//! Conversion of other errors to errno values.

pub(crate) use remora_abi::errno::{minus_one, pointer, set};
use std::ffi::c_int;
use std::io;

/// Returns the calling thread's errno.
pub(crate) fn last() -> c_int {
    of_io(&io::Error::last_os_error())
}

/// Returns the errno of an error of the broker's client.
pub(crate) fn of_io(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or(libc::EIO)
}
