//! Error returns of the functions of both libraries: they set errno and return -1 or NULL.

use std::ffi::c_int;

/// Sets the calling thread's errno and returns its value.
#[allow(unsafe_code, reason = "the C library hands out a pointer")]
pub fn set(errno: c_int) -> c_int {
    // SAFETY: the C library returns a place that belongs to the thread.
    unsafe { *libc::__errno_location() = errno };
    errno
}

/// Returns 0, or sets errno and returns -1.
pub fn minus_one(done: Result<(), c_int>) -> c_int {
    match done {
        Ok(()) => 0,
        Err(errno) => {
            set(errno);
            -1
        }
    }
}

/// Returns the pointer, or sets errno and returns NULL.
pub fn pointer<T>(made: Result<*mut T, c_int>) -> *mut T {
    made.unwrap_or_else(|errno| {
        set(errno);
        std::ptr::null_mut()
    })
}
