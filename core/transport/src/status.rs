//! How a work request ends: the completion status of the verbs.

/// Completion status, numbered as `ibv_wc_status` (IBTA vol. 1 §10.10.3 and table 94 give the meanings).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Status {
    /// It was done.
    Success = 0,
    /// Local length error: the message did not fit, or exceeds what the port can carry.
    LocalLength = 1,
    /// Local QP operation error: the WQE itself is wrong.
    LocalQpOperation = 2,
    /// Local protection error: a local key, range or right is wrong.
    LocalProtection = 4,
    /// Flushed: the queue pair was in the error state.
    WrFlushed = 5,
    /// A memory window could not be bound.
    MwBind = 6,
    /// The responder sent something that does not fit the request.
    BadResponse = 7,
    /// Local access error (responder side, WRITE with immediate data).
    LocalAccess = 8,
    /// Remote invalid request.
    RemoteInvalidRequest = 9,
    /// Remote access error: key, range or right.
    RemoteAccess = 10,
    /// Remote operation error.
    RemoteOperation = 11,
    /// The transport's retries ran out: nobody answers.
    RetryExceeded = 12,
    /// The peer stayed "receiver not ready" for too long.
    RnrRetryExceeded = 13,
    /// Anything else.
    General = 21,
}

impl Status {
    /// Every status, in numeric order.
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

    /// The status of a number, as found in a completion queue entry.
    pub fn from_number(number: u8) -> Status {
        Self::ALL.into_iter().find(|status| *status as u8 == number).unwrap_or(Status::General)
    }

    /// What it means for a person, with the usual cause.
    pub fn explain(self) -> &'static str {
        match self {
            Status::Success => "success",
            Status::LocalLength => "local length error: the message is longer than the buffers posted for it",
            Status::LocalQpOperation => "local QP operation error: the work request itself is malformed",
            Status::LocalProtection => {
                "local protection error: a local key, its range or its rights are wrong"
            }
            Status::WrFlushed => "flushed: the queue pair went to the error state before this request ran",
            Status::MwBind => "memory window bind error",
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
