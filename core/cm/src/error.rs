//! The errors of calls to the manager.

/// The reason why a call was refused. Nothing has changed then.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CmError {
    /// No id and no listener has this handle, or the handle belongs to the wrong one of both (`EINVAL`).
    #[error("no id or listener has this handle")]
    NoSuchHandle,
    /// The handle is already used by an id or a listener (`EINVAL`).
    #[error("the handle is already in use")]
    HandleInUse,
    /// The id's state does not allow the call (`EINVAL`).
    #[error("the state of the id does not allow the call")]
    WrongState,
    /// A value does not fit its field, or private data are too long for the message (`EINVAL`).
    #[error("a value does not fit its field in the message")]
    OutOfRange,
    /// Another listener already has this service at this address (`EADDRINUSE`).
    #[error("another listener already has this service at this address")]
    AddressInUse,
    /// All ids or listeners are in use (`ENOMEM`).
    #[error("all ids or listeners of the manager are in use")]
    NoResources,
    /// A queue of MADs or events is full and must be drained first (`EAGAIN`).
    #[error("a queue of MADs or events is full: take them first")]
    Busy,
}
