//! SIDR_REP: the queue pair of a datagram service, or the reason why there is none (IBTA volume 1, chapter
//! 12.11.2).

use super::fields::{mad, numbers};
use super::{BODY_LEN, INFO_LEN, ServiceId};
use crate::Qpn;

/// Length of the private data in bytes.
pub const PRIVATE_LEN: usize = 136;

/// Result of the lookup of a datagram service (IBTA volume 1, chapter 12.11.2).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SidrStatus(pub u8);

impl SidrStatus {
    /// The service exists; the message has its queue pair and Q_Key.
    pub const VALID: SidrStatus = SidrStatus(0);
    /// The service does not exist.
    pub const UNSUPPORTED: SidrStatus = SidrStatus(1);
    /// The program that offers the service refused.
    pub const REJECTED: SidrStatus = SidrStatus(2);
    /// No queue pair is available for the service.
    pub const NO_QP: SidrStatus = SidrStatus(3);
    /// Another port offers the service.
    pub const REDIRECT: SidrStatus = SidrStatus(4);
    /// The version of the request is not supported.
    pub const UNSUPPORTED_VERSION: SidrStatus = SidrStatus(5);
}

numbers! {
    SidrStatus: number => SidrStatus(number as u8), value => value.0.into();
}

mad! {
    BODY_LEN,
    "request_id={request_id:#010x} status={status:?} qpn={qpn} qkey={qkey:#010x}",
    check view => usize::from(view.info_len()) <= INFO_LEN;

    /// Id of the request that this message answers.
    request_id: u32 = 0, 32;
    /// Result of the lookup.
    status: SidrStatus = 4, 8;
    /// Number of valid bytes of the additional information, 0 to 72.
    info_len: u8 = 5, 8;
    /// Queue pair number for the datagrams.
    qpn: Qpn = 8, 24;
    /// Service that was requested.
    service_id: ServiceId = 12, 64;
    /// Q_Key that datagrams must carry.
    qkey: u32 = 20, 32;
    /// Additional information, depending on the status.
    info: [u8; INFO_LEN] = 24, INFO_LEN * 8;
    /// Private data, passed from the sender's program to the receiver's.
    private_data: [u8; PRIVATE_LEN] = 96, PRIVATE_LEN * 8;
}
