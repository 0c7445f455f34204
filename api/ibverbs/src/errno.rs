//! Errors of the raw layer as an errno.

use remora_verbs::{CreateError, PollError, PostError, QueueError};
pub use remora_verbs::{errno_of_memory as of_memory, errno_of_open as of_open};
use std::ffi::c_int;

/// Sets the calling thread's errno and returns it.
pub fn set(errno: c_int) -> c_int {
    // SAFETY: the C library's own place for it.
    unsafe { *libc::__errno_location() = errno };
    errno
}

/// 0, or the errno, which is also set: how most verbs return.
pub fn number(done: Result<(), c_int>) -> c_int {
    done.map_or_else(set, |()| 0)
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

pub fn of_create(error: CreateError) -> c_int {
    // A device that is gone, as providers say of one that has failed.
    if error == CreateError::Forked { libc::EIO } else { error.errno() }
}

pub fn of_queue(error: QueueError) -> c_int {
    PostError::Queue(error).errno()
}

pub fn of_post(error: PostError) -> c_int {
    if error == PostError::Forked { libc::EIO } else { error.errno() }
}

pub fn of_poll(error: PollError) -> c_int {
    if error == PollError::Forked { libc::EIO } else { error.errno() }
}
