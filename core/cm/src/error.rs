//! Why a call to the manager is refused. Nothing has changed then.

use std::fmt;

/// Why a call is refused.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum CmError {
    /// No id and no listener has this handle, or it is of the other kind (`EINVAL`).
    NoSuchHandle,
    /// Another id or listener has this handle (`EINVAL`).
    HandleInUse,
    /// The id's state does not allow the call (`EINVAL`).
    WrongState,
    /// A value does not fit its field, or private data are too long for their message (`EINVAL`).
    OutOfRange,
    /// Somebody listens to this service at this address already (`EADDRINUSE`).
    AddressInUse,
    /// There are as many ids or listeners as there may be (`ENOMEM`).
    NoResources,
    /// MADs or events have to be taken first (`EAGAIN`).
    Busy,
}

impl fmt::Display for CmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CmError::NoSuchHandle => "no id has this handle",
            CmError::HandleInUse => "the handle is in use",
            CmError::WrongState => "the id is in another state",
            CmError::OutOfRange => "a value does not fit its field",
            CmError::AddressInUse => "somebody listens to this service already",
            CmError::NoResources => "there are as many ids as there may be",
            CmError::Busy => "MADs or events wait to be taken",
        })
    }
}

impl std::error::Error for CmError {}
