//! The completion status of a work request.

/// Completion status, numbered as `ibv_wc_status`. IBTA vol. 1 §10.10.3 and table 94 define the meanings.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Status {
    /// The request was executed.
    Success = 0,
    /// Local length error: the message is longer than the receive buffers or than the port allows.
    LocalLength = 1,
    /// Local QP operation error: the WQE is invalid.
    LocalQpOperation = 2,
    /// Local protection error: a local key, range or access right is invalid.
    LocalProtection = 4,
    /// Work request flushed: the queue pair is in the error state.
    WrFlushed = 5,
    /// Memory management operation error: a memory window could not be bound, or a key not be invalidated.
    MwBind = 6,
    /// Bad response: the responder sent a packet that does not match the request.
    BadResponse = 7,
    /// Local access error at the responder (WRITE with immediate data).
    LocalAccess = 8,
    /// Remote invalid request error.
    RemoteInvalidRequest = 9,
    /// Remote access error: a remote key, range or access right is invalid.
    RemoteAccess = 10,
    /// Remote operation error.
    RemoteOperation = 11,
    /// Transport retry counter exceeded: the peer does not answer.
    RetryExceeded = 12,
    /// RNR retry counter exceeded: the peer had no receive posted for too long.
    RnrRetryExceeded = 13,
    /// General error of the device.
    General = 21,
}

impl Status {
    /// All statuses, in numeric order.
    pub const ALL: [Status; 14] = [
        Status::Success,
        Status::LocalLength,
        Status::LocalQpOperation,
        Status::LocalProtection,
        Status::WrFlushed,
        Status::MwBind,
        Status::BadResponse,
        Status::LocalAccess,
        Status::RemoteInvalidRequest,
        Status::RemoteAccess,
        Status::RemoteOperation,
        Status::RetryExceeded,
        Status::RnrRetryExceeded,
        Status::General,
    ];

    /// Returns the status with this number, as found in a completion queue entry; `General` if unknown.
    pub fn from_number(number: u8) -> Status {
        Self::ALL.into_iter().find(|status| *status as u8 == number).unwrap_or(Status::General)
    }

    /// Returns a description for people, with the usual cause.
    pub fn explain(self) -> &'static str {
        match self {
            Status::Success => "success",
            Status::LocalLength => "local length error: the message is longer than the buffers posted for it",
            Status::LocalQpOperation => "local QP operation error: the work request itself is malformed",
            Status::LocalProtection => {
                "local protection error: a local key, its range or its rights are wrong"
            }
            Status::WrFlushed => "flushed: the queue pair went to the error state before this request ran",
            Status::MwBind => {
                "memory window bind error: a window could not be bound, or a key could not be invalidated"
            }
            Status::BadResponse => "bad response: the peer answered something that does not fit the request",
            Status::LocalAccess => "local access error",
            Status::RemoteInvalidRequest => {
                "remote invalid request: the peer does not allow this operation or length"
            }
            Status::RemoteAccess => {
                "remote access error: the rkey, its range or its rights are wrong at the peer"
            }
            Status::RemoteOperation => "remote operation error: the peer could not complete the operation",
            Status::RetryExceeded => {
                "transport retry counter exceeded: the peer does not answer (dead, unreachable, or wrong QP number)"
            }
            Status::RnrRetryExceeded => "RNR retry counter exceeded: the peer has no receive posted",
            Status::General => "general error",
        }
    }
}
