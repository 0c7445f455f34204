//! REQ: the connection request of the active side (IBTA volume 1, chapter 12.6.5). Bytes 4 to 7, which are
//! ignored here, hold the vendor id of ECE in later versions.

use super::fields::mad;
use super::{BODY_LEN, ServiceId, path};
use crate::{Psn, Qpn};

/// Length of the private data in bytes.
pub const PRIVATE_LEN: usize = 92;

/// The transport service of a connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ConnectedService {
    /// Reliable connection service.
    Rc,
    /// Unreliable connection service.
    Uc,
    /// Reliable datagram, which has no known implementation.
    Rd,
    /// Extended reliable connection.
    Xrc,
}

impl ConnectedService {
    /// Returns the fields `transport` and `extended_transport` of a REQ.
    pub const fn codes(self) -> [u8; 2] {
        match self {
            ConnectedService::Rc => [0, 0],
            ConnectedService::Uc => [1, 0],
            ConnectedService::Rd => [2, 0],
            ConnectedService::Xrc => [3, 1],
        }
    }
}

mad! {
    BODY_LEN,
    "local_comm_id={local_comm_id:#010x} service_id={service_id} local_qpn={local_qpn} \
     starting_psn={starting_psn} path_mtu={path_mtu} primary={primary}";

    /// Communication id of the sender.
    local_comm_id: u32 = 0, 32;
    /// Service that is requested.
    service_id: ServiceId = 8, 64;
    /// GUID of the sender's channel adapter.
    local_ca_guid: u64 = 16, 64;
    /// Used by reliable datagram services only; otherwise 0.
    local_qkey: u32 = 28, 32;
    /// Queue pair number of the sender.
    local_qpn: Qpn = 32, 24;
    /// Maximum number of outstanding READs and atomics that the sender's queue pair accepts as responder.
    responder_resources: u8 = 35, 8;
    /// Used by reliable datagram services only, 24 bits; otherwise 0.
    local_eecn: u32 = 36, 24;
    /// Number of READs and atomics that the sender's queue pair would like to have outstanding as requester.
    initiator_depth: u8 = 39, 8;
    /// Used by reliable datagram services only, 24 bits; otherwise 0.
    remote_eecn: u32 = 40, 24;
    /// Code of the time within which the receiver should answer, 5 bits.
    remote_response_timeout: u8 = 43, 5;
    /// Transport service, 2 bits: 0 RC, 1 UC, 2 RD, 3 given by `extended_transport`.
    transport: u8 = 43 [5], 2;
    /// True if the sender's queue pair uses end-to-end flow control.
    flow_control: bool = 43 [7], 1;
    /// PSN of the first packet that the receiver's queue pair must send.
    starting_psn: Psn = 44, 24;
    /// Code of the time within which the sender answers, 5 bits.
    local_response_timeout: u8 = 47, 5;
    /// Retry count that the receiver's queue pair should use, 3 bits.
    retry_count: u8 = 47 [5], 3;
    /// Partition key of the connection.
    pkey: u16 = 48, 16;
    /// Code of the path MTU, 4 bits: 1 for 256 bytes to 5 for 4096 bytes.
    path_mtu: u8 = 50, 4;
    /// Used by reliable datagram services only; otherwise false.
    rdc_exists: bool = 50 [4], 1;
    /// RNR retry count that the receiver's queue pair should use, 3 bits.
    rnr_retry_count: u8 = 50 [5], 3;
    /// Number of retransmissions of a CM message before either side gives up, 4 bits.
    max_cm_retries: u8 = 51, 4;
    /// True if the sender's queue pair uses a shared receive queue.
    srq: bool = 51 [4], 1;
    /// Extended transport service if `transport` is 3, 3 bits: 1 XRC.
    extended_transport: u8 = 51 [5], 3;
    /// Primary path of the connection.
    primary: path::Repr = 52, path::LEN * 8;
    /// Alternate path for path migration; all zero if absent.
    alternate: path::Repr = 96, path::LEN * 8;
    /// Private data, passed from the sender's program to the receiver's.
    private_data: [u8; PRIVATE_LEN] = 140, PRIVATE_LEN * 8;
}

impl Repr {
    /// Returns the transport service of the connection, or `None` for a reserved value.
    pub const fn service(&self) -> Option<ConnectedService> {
        match (self.transport, self.extended_transport) {
            (0, _) => Some(ConnectedService::Rc),
            (1, _) => Some(ConnectedService::Uc),
            (2, _) => Some(ConnectedService::Rd),
            (3, 1) => Some(ConnectedService::Xrc),
            _ => None,
        }
    }
}
