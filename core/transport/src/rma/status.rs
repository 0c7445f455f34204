//! The statuses of operations.

/// How an operation ended (1RMA paper, Table 3, and two that it does not name).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Status {
    /// It was done.
    Ok = 0,
    /// The server does not take the key for the region, or has no such region.
    RemoteAuthenticationFailure = 1,
    /// The server has too much to do.
    Nack = 2,
    /// No end came in time. A write may have taken effect, but takes none from now on.
    Timeout = 3,
    /// It waited too long for the window, and was never sent.
    DispatchTimeout = 4,
    /// The key is right, but the region lacks the right or the bytes lie outside of it.
    RemoteAccessError = 5,
    /// The command is wrong, or names local memory that its program may not use.
    LocalError = 6,
}

impl Status {
    /// Every status, in numeric order.
    pub const ALL: [Status; 7] = [
        Status::Ok,
        Status::RemoteAuthenticationFailure,
        Status::Nack,
        Status::Timeout,
        Status::DispatchTimeout,
        Status::RemoteAccessError,
        Status::LocalError,
    ];

    /// The status of a number, as found in a completion queue entry.
    pub fn from_number(number: u8) -> Status {
        Status::ALL.into_iter().find(|status| *status as u8 == number).unwrap_or(Status::LocalError)
    }

    /// What it means for a person, with the usual cause.
    pub fn explain(self) -> &'static str {
        match self {
            Status::Ok => "success",
            Status::RemoteAuthenticationFailure => {
                "authentication failure: the server has another key for this region, or no such region"
            }
            Status::Nack => "NACK: the server has too many operations to serve",
            Status::Timeout => "timeout: the server is unreachable, gone or overloaded",
            Status::DispatchTimeout => {
                "dispatch timeout: this NIC's window was full; the congestion is local"
            }
            Status::RemoteAccessError => {
                "remote access error: the region does not grant the right, or the bytes lie outside of it"
            }
            Status::LocalError => {
                "local error: the command's size, local region or completion queue is wrong"
            }
        }
    }
}
