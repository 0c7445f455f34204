//! SIDR_REQ: a request for the queue pair of a datagram service (IBTA volume 1, chapter 12.11.1).

use super::fields::mad;
use super::{BODY_LEN, ServiceId};

/// Length of the private data in bytes.
pub const PRIVATE_LEN: usize = 216;

mad! {
    BODY_LEN, "request_id={request_id:#010x} service_id={service_id}";

    /// Request id, equal in a request, its retransmissions and its answer.
    request_id: u32 = 0, 32;
    /// Partition key of the datagrams.
    pkey: u16 = 4, 16;
    /// Service that is requested.
    service_id: ServiceId = 8, 64;
    /// Private data, passed from the sender's program to the receiver's.
    private_data: [u8; PRIVATE_LEN] = 16, PRIVATE_LEN * 8;
}
