//! The functions behind this library's, which are the C library's unless another preload library has them.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The function of this name behind this library; NULL: there is none. `found` keeps it.
pub fn look(found: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = found.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    // SAFETY: a C string.
    let looked = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    found.store(looked, Ordering::Release);
    looked
}

/// The calling thread's errno.
pub fn errno() -> i32 {
    // SAFETY: a place of the thread's own.
    unsafe { *libc::__errno_location() }
}

/// Sets it.
pub fn set_errno(errno: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}
