//! The errors of calls to the manager.

use std::fmt;

/// The reason why a call was refused. Nothing has changed then.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum CmError {
    /// No id and no listener has this handle, or the handle belongs to the wrong one of both (`EINVAL`).
    NoSuchHandle,
    /// The handle is already used by an id or a listener (`EINVAL`).
    HandleInUse,
    /// The id's state does not allow the call (`EINVAL`).
    WrongState,
    /// A value does not fit its field, or private data are too long for the message (`EINVAL`).
    OutOfRange,
    /// Another listener already has this service at this address (`EADDRINUSE`).
    AddressInUse,
    /// All ids or listeners are in use (`ENOMEM`).
    NoResources,
    /// A queue of MADs or events is full and must be drained first (`EAGAIN`).
    Busy,
}

impl fmt::Display for CmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CmError::NoSuchHandle => "no id or listener has this handle",
            CmError::HandleInUse => "the handle is already in use",
            CmError::WrongState => "the state of the id does not allow the call",
            CmError::OutOfRange => "a value does not fit its field in the message",
            CmError::AddressInUse => "another listener already has this service at this address",
            CmError::NoResources => "all ids or listeners of the manager are in use",
            CmError::Busy => "a queue of MADs or events is full: take them first",
        })
    }
}

impl std::error::Error for CmError {}
