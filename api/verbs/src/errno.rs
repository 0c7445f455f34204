//! Errors as the errno that C programs are told.

use remora_host::OpenError;
use remora_memory::Error as MemoryError;

use crate::{CreateError, PollError, PostError};

impl CreateError {
    /// What C programs are told.
    pub fn errno(&self) -> i32 {
        match self {
            CreateError::Memory(error) => errno_of_memory(*error),
            CreateError::Nic(remora_nic::NicError::Full) => libc::ENOMEM,
            CreateError::Nic(remora_nic::NicError::Busy) | CreateError::Reentered => libc::EBUSY,
            CreateError::Forked => libc::EPERM,
            CreateError::Unreachable(_) => libc::EHOSTUNREACH,
            CreateError::System(errno) => *errno,
            _ => libc::EINVAL,
        }
    }
}

impl PostError {
    /// What C programs are told.
    pub fn errno(&self) -> i32 {
        match self {
            PostError::Queue(remora_nic::PostError::QueueFull) => libc::ENOMEM,
            PostError::Forked => libc::EPERM,
            PostError::Reentered => libc::EBUSY,
            PostError::Failed => libc::EIO,
            _ => libc::EINVAL,
        }
    }
}

impl PollError {
    /// What C programs are told.
    pub fn errno(&self) -> i32 {
        match self {
            PollError::Overrun => libc::EOVERFLOW,
            PollError::Timeout => libc::ETIMEDOUT,
            PollError::Forked => libc::EPERM,
            PollError::Reentered => libc::EBUSY,
            PollError::Failed => libc::EIO,
            PollError::System(errno) => *errno,
        }
    }
}

/// What C programs are told of the memory table's error.
pub fn errno_of_memory(error: MemoryError) -> i32 {
    match error {
        MemoryError::Invalid | MemoryError::Unknown => libc::EINVAL,
        MemoryError::Full => libc::ENOMEM,
        MemoryError::Busy => libc::EBUSY,
        MemoryError::InsidePass => libc::EDEADLK,
        MemoryError::Os(errno) => errno,
    }
}

/// What C programs are told of a NIC that cannot be opened.
pub fn errno_of_open(error: &OpenError) -> i32 {
    match error {
        OpenError::Engines(_) => libc::EINVAL,
        OpenError::Port(_) => libc::ENODEV,
        OpenError::Memory(error) => errno_of_memory(*error),
        OpenError::System(error) | OpenError::Call(_, error) => error.raw_os_error().unwrap_or(libc::EIO),
    }
}
