//! Completion statuses of operations.

/// Completion status of an operation (1RMA paper, Table 3, and two statuses that it does not name).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Status {
    /// The operation was executed.
    Ok = 0,
    /// The server does not accept the key for the region, or has no such region.
    RemoteAuthenticationFailure = 1,
    /// The server is overloaded.
    Nack = 2,
    /// The operation did not end in time. A write may have been executed, but will not be from now on.
    Timeout = 3,
    /// The operation waited too long for the window and was never sent.
    DispatchTimeout = 4,
    /// The key is correct, but the region lacks the right or the range is out of bounds.
    RemoteAccessError = 5,
    /// The command is invalid, or its local memory is not accessible to the program.
    LocalError = 6,
}

impl Status {
    /// All statuses, in numeric order.
    pub const ALL: [Status; 7] = [
        Status::Ok,
        Status::RemoteAuthenticationFailure,
        Status::Nack,
        Status::Timeout,
        Status::DispatchTimeout,
        Status::RemoteAccessError,
        Status::LocalError,
    ];

    /// Returns the status with this number, as found in a completion queue entry; `LocalError` if unknown.
    pub fn from_number(number: u8) -> Status {
        Status::ALL.into_iter().find(|status| *status as u8 == number).unwrap_or(Status::LocalError)
    }

    /// Returns a description for people, with the usual cause.
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
