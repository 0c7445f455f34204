//! How functions of both libraries say what went wrong: they set errno and return -1 or NULL.

use std::ffi::c_int;

/// Sets the calling thread's errno and returns it.
#[allow(unsafe_code, reason = "the C library hands out a pointer")]
pub fn set(errno: c_int) -> c_int {
    // SAFETY: the C library's own place for it.
    unsafe { *libc::__errno_location() = errno };
    errno
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
