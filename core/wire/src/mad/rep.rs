//! REP: the passive side accepts a connection (IBTA volume 1, chapter 12.6.8).

use super::BODY_LEN;
use super::fields::mad;
use crate::{Psn, Qpn};

/// Length of the private data in bytes.
pub const PRIVATE_LEN: usize = 196;

mad! {
    BODY_LEN,
    "local_comm_id={local_comm_id:#010x} remote_comm_id={remote_comm_id:#010x} local_qpn={local_qpn} \
     starting_psn={starting_psn}";

    /// Communication id of the sender.
    local_comm_id: u32 = 0, 32;
    /// Communication id of the receiver.
    remote_comm_id: u32 = 4, 32;
    /// Used by reliable datagram services only; otherwise 0.
    local_qkey: u32 = 8, 32;
    /// Queue pair number of the sender; that of an XRC target is in `local_eecn` instead.
    local_qpn: Qpn = 12, 24;
    /// Queue pair number of an XRC target, 24 bits; otherwise 0.
    local_eecn: u32 = 16, 24;
    /// PSN of the first packet that the receiver's queue pair must send.
    starting_psn: Psn = 20, 24;
    /// Maximum number of outstanding READs and atomics that the sender's queue pair accepts as responder.
    responder_resources: u8 = 24, 8;
    /// Maximum number of READs and atomics that the sender's queue pair has outstanding as requester.
    initiator_depth: u8 = 25, 8;
    /// Code of the sender's maximum delay before it sends an ACK, 5 bits.
    target_ack_delay: u8 = 26, 5;
    /// Response to the alternate path, 2 bits: 0 accepted, 1 not supported, 2 refused.
    failover: u8 = 26 [5], 2;
    /// True if the sender's queue pair uses end-to-end flow control.
    flow_control: bool = 26 [7], 1;
    /// RNR retry count that the receiver's queue pair should use, 3 bits.
    rnr_retry_count: u8 = 27, 3;
    /// True if the sender's queue pair uses a shared receive queue.
    srq: bool = 27 [3], 1;
    /// GUID of the sender's channel adapter.
    local_ca_guid: u64 = 28, 64;
    /// Private data, passed from the sender's program to the receiver's.
    private_data: [u8; PRIVATE_LEN] = 36, PRIVATE_LEN * 8;
}
