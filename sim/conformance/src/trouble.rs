//! The planned error of an epoch, and which statuses are right then.

use remora_nic::Status;

/// The planned end of an epoch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// WRITE, READ or atomic with a key that names nothing (any more).
    DeadKey,
    /// Beyond the end of the region.
    OutOfBounds,
    /// An access that the region's rights do not allow.
    NoRight,
    /// An atomic on an odd address.
    Misaligned,
    /// A SEND longer than the receive.
    TooLong,
    /// The receive names memory that may not be written.
    BadReceive,
    /// SEND_INV of a key that may not be invalidated.
    BadInvalidation,
    /// The bytes to send have a wrong local key.
    BadLocalKey,
    /// The bytes read would go where the NIC may not write.
    UnwritableSink,
    /// LOCAL_INV of a key that names nothing.
    BadLocalInvalidation,
    /// Nothing arrives any more.
    Cut,
    /// The peer never posts a receive, and retries are limited.
    NeverReady,
    /// The program brings its queue pair to ERR.
    Fail,
}

impl Trouble {
    /// All of them.
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

    /// The status of the work request that goes wrong when everything else goes right.
    pub fn status(self) -> Status {
        match self {
            Trouble::DeadKey | Trouble::OutOfBounds | Trouble::NoRight | Trouble::BadInvalidation => {
                Status::RemoteAccess
            }
            Trouble::Misaligned | Trouble::TooLong => Status::RemoteInvalidRequest,
            Trouble::BadReceive => Status::RemoteOperation,
            Trouble::BadLocalKey | Trouble::UnwritableSink | Trouble::BadLocalInvalidation => {
                Status::LocalProtection
            }
            Trouble::Cut => Status::RetryExceeded,
            Trouble::NeverReady => Status::RnrRetryExceeded,
            Trouble::Fail => Status::WrFlushed,
        }
    }

    /// How the receive that meets it ends, if not flushed.
    pub fn receive_status(self) -> Option<Status> {
        match self {
            Trouble::TooLong => Some(Status::LocalLength),
            Trouble::BadReceive | Trouble::BadInvalidation => Some(Status::LocalProtection),
            _ => None,
        }
    }

    /// Is it one particular work request that goes wrong?
    pub fn is_of_a_request(self) -> bool {
        !matches!(self, Trouble::Cut | Trouble::NeverReady | Trouble::Fail)
    }
}
