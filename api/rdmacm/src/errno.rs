//! Errors as an errno, which librdmacm sets while it returns -1 or NULL.

use std::ffi::c_int;
use std::io;

/// Sets the calling thread's errno.
pub fn set(errno: c_int) {
    // SAFETY: the C library's own place for it.
    unsafe { *libc::__errno_location() = errno };
}

/// The calling thread's errno.
pub fn last() -> c_int {
    of_io(&io::Error::last_os_error())
}

/// 0, or -1 with the errno set.
pub fn minus_one(done: Result<(), c_int>) -> c_int {
    match done {
        Ok(()) => 0,
        Err(errno) => {
            set(errno);
            -1
        }
    }
}

/// The pointer, or NULL with the errno set.
pub fn pointer<T>(made: Result<*mut T, c_int>) -> *mut T {
    made.unwrap_or_else(|errno| {
        set(errno);
        std::ptr::null_mut()
    })
}

/// The errno of an error of the broker's client.
pub fn of_io(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or(libc::EIO)
}
