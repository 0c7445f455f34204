//! Errors of the raw layer as an errno.

use remora_verbs::{CreateError, MemoryError, NicError, OpenError, PollError, PostError, QueueError};
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

pub fn of_memory(error: MemoryError) -> c_int {
    match error {
        MemoryError::Invalid | MemoryError::Unknown => libc::EINVAL,
        MemoryError::Full => libc::ENOMEM,
        MemoryError::Busy => libc::EBUSY,
        MemoryError::InsidePass => libc::EDEADLK,
        MemoryError::Os(errno) => errno,
    }
}

pub fn of_create(error: CreateError) -> c_int {
    match error {
        CreateError::Memory(error) => of_memory(error),
        CreateError::Nic(NicError::Full) => libc::ENOMEM,
        CreateError::Nic(NicError::Busy) => libc::EBUSY,
        CreateError::Forked => libc::EIO,
        CreateError::Reentered => libc::EBUSY,
        CreateError::Unreachable(_) => libc::EHOSTUNREACH,
        CreateError::System(errno) => errno,
        _ => libc::EINVAL,
    }
}

pub fn of_open(error: &OpenError) -> c_int {
    match error {
        OpenError::Engines(_) => libc::EINVAL,
        OpenError::Port(_) => libc::ENODEV,
        OpenError::Memory(error) => of_memory(*error),
        OpenError::System(error) => error.raw_os_error().unwrap_or(libc::EIO),
    }
}

pub fn of_queue(error: QueueError) -> c_int {
    if error == QueueError::QueueFull { libc::ENOMEM } else { libc::EINVAL }
}

pub fn of_post(error: PostError) -> c_int {
    match error {
        PostError::Queue(error) => of_queue(error),
        PostError::Forked | PostError::Failed => libc::EIO,
        PostError::Reentered => libc::EBUSY,
        _ => libc::EINVAL,
    }
}

pub fn of_poll(error: PollError) -> c_int {
    match error {
        PollError::Overrun => libc::EOVERFLOW,
        PollError::Timeout => libc::ETIMEDOUT,
        PollError::Forked | PollError::Failed => libc::EIO,
        PollError::Reentered => libc::EBUSY,
        PollError::System(errno) => errno,
    }
}
