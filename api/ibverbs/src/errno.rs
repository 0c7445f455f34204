//! Conversion of errors of the raw layer to errno values.

pub(crate) use remora_abi::errno::{minus_one, pointer, set};
use remora_verbs::{CreateError, PollError, PostError, QueueError};
pub(crate) use remora_verbs::{errno_of_memory as of_memory, errno_of_open as of_open};
use std::ffi::c_int;

/// Returns 0, or sets and returns the errno, as most verbs do.
pub(crate) fn number(done: Result<(), c_int>) -> c_int {
    done.map_or_else(set, |()| 0)
}

pub(crate) fn of_create(error: CreateError) -> c_int {
    // A forked child has lost the device; providers return EIO for a failed one.
    if error == CreateError::Forked { libc::EIO } else { error.errno() }
}

pub(crate) fn of_queue(error: QueueError) -> c_int {
    PostError::Queue(error).errno()
}

pub(crate) fn of_post(error: PostError) -> c_int {
    if error == PostError::Forked { libc::EIO } else { error.errno() }
}

pub(crate) fn of_poll(error: PollError) -> c_int {
    if error == PollError::Forked { libc::EIO } else { error.errno() }
}
