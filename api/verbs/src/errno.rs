//! The errno values that C programs get for errors.

use remora_host::OpenError;
use remora_memory::Error as MemoryError;

use crate::{CreateError, PollError, PostError};

impl CreateError {
    /// The errno that C programs get for this error.
    pub fn errno(&self) -> i32 {
        match self {
            CreateError::Memory(error) => errno_of_memory(*error),
            CreateError::Nic(remora_nic::NicError::Full) | CreateError::Limit(_) => libc::ENOMEM,
            CreateError::Nic(remora_nic::NicError::Busy) | CreateError::Reentered => libc::EBUSY,
            CreateError::Forked => libc::EPERM,
            CreateError::Unreachable(_) => libc::EHOSTUNREACH,
            CreateError::System(_, errno) => *errno,
            _ => libc::EINVAL,
        }
    }
}

impl PostError {
    /// The errno that C programs get for this error.
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
    /// The errno that C programs get for this error.
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

/// The errno that C programs get for an error of the memory table.
pub fn errno_of_memory(error: MemoryError) -> i32 {
    match error {
        MemoryError::Invalid | MemoryError::Unknown => libc::EINVAL,
        MemoryError::Full => libc::ENOMEM,
        MemoryError::Busy => libc::EBUSY,
        MemoryError::InsidePass => libc::EDEADLK,
        MemoryError::Os(errno) => errno,
    }
}

/// The errno that C programs get if a NIC cannot be opened.
pub fn errno_of_open(error: &OpenError) -> i32 {
    match error {
        OpenError::Engines(_) => libc::EINVAL,
        OpenError::Port(_) => libc::ENODEV,
        OpenError::Memory(error) => errno_of_memory(*error),
        OpenError::System(error) | OpenError::Call(_, error) => error.raw_os_error().unwrap_or(libc::EIO),
    }
}
