//! The functions that come after this library's in the symbol order: those of another preload library, or
//! the C library's.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Returns the next function of the given name, or NULL if there is none. `cache` holds the result.
pub(crate) fn look(cache: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = cache.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    // SAFETY: the name is a C string.
    let looked = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    cache.store(looked, Ordering::Release);
    looked
}

/// Returns the calling thread's errno.
pub(crate) fn errno() -> i32 {
    // SAFETY: the C library returns a place that belongs to the thread.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's errno.
pub(crate) fn set_errno(errno: i32) {
    // SAFETY: the C library returns a place that belongs to the thread.
    unsafe { *libc::__errno_location() = errno };
}
