//! The planned error of an epoch, and the expected statuses.

use remora_nic::Status;

/// A planned error of an epoch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A WRITE, READ or atomic with an invalid or invalidated key.
    DeadKey,
    /// An access beyond the end of the region.
    OutOfBounds,
    /// An access that the rights of the region do not allow.
    NoRight,
    /// An atomic on an unaligned address.
    Misaligned,
    /// A SEND that is longer than its receive.
    TooLong,
    /// A receive with an invalid key.
    BadReceive,
    /// A SEND_INV with a key that may not be invalidated.
    BadInvalidation,
    /// An invalid local key of the data to send.
    BadLocalKey,
    /// A READ or atomic into local memory that the NIC may not write.
    UnwritableSink,
    /// A LOCAL_INV of an invalid key.
    BadLocalInvalidation,
    /// The link is cut.
    Cut,
    /// The peer never posts a receive, and retries are limited.
    NeverReady,
    /// The program moves its queue pair to ERR.
    Fail,
}

impl Trouble {
    /// All planned errors.
    pub const ALL: [Trouble; 13] = [
        Trouble::DeadKey,
        Trouble::OutOfBounds,
        Trouble::NoRight,
        Trouble::Misaligned,
        Trouble::TooLong,
        Trouble::BadReceive,
        Trouble::BadInvalidation,
        Trouble::BadLocalKey,
        Trouble::UnwritableSink,
        Trouble::BadLocalInvalidation,
        Trouble::Cut,
        Trouble::NeverReady,
        Trouble::Fail,
    ];

    /// Returns the expected status of the failing work request, if no other error occurs.
    pub fn status(self) -> Status {
        match self {
            Trouble::DeadKey | Trouble::OutOfBounds | Trouble::NoRight => Status::RemoteAccess,
            Trouble::Misaligned | Trouble::TooLong => Status::RemoteInvalidRequest,
            Trouble::BadReceive => Status::RemoteOperation,
            Trouble::BadLocalKey | Trouble::UnwritableSink => Status::LocalProtection,
            Trouble::BadLocalInvalidation => Status::MwBind,
            // The peer's queue pair ends without a NAK.
            Trouble::Cut | Trouble::BadInvalidation => Status::RetryExceeded,
            Trouble::NeverReady => Status::RnrRetryExceeded,
            Trouble::Fail => Status::WrFlushed,
        }
    }

    /// Returns the expected status of the affected receive, or `None` if it is flushed.
    pub fn receive_status(self) -> Option<Status> {
        match self {
            Trouble::TooLong => Some(Status::LocalLength),
            Trouble::BadReceive => Some(Status::LocalProtection),
            Trouble::BadInvalidation => Some(Status::MwBind),
            _ => None,
        }
    }

    /// Returns true if the error is caused by one particular work request.
    pub fn is_of_a_request(self) -> bool {
        !matches!(self, Trouble::Cut | Trouble::NeverReady | Trouble::Fail)
    }
}
