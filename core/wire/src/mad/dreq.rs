//! DREQ: a request to end a connection (IBTA volume 1, chapter 12.6.10).

use super::BODY_LEN;
use super::fields::mad;
use crate::Qpn;

/// Length of the private data in bytes.
pub const PRIVATE_LEN: usize = 220;

mad! {
    BODY_LEN,
    "local_comm_id={local_comm_id:#010x} remote_comm_id={remote_comm_id:#010x} remote_qpn={remote_qpn}";

    /// Communication id of the sender.
    local_comm_id: u32 = 0, 32;
    /// Communication id of the receiver.
    remote_comm_id: u32 = 4, 32;
    /// Queue pair number of the receiver, which the receiver validates.
    remote_qpn: Qpn = 8, 24;
    /// Private data, passed from the sender's program to the receiver's.
    private_data: [u8; PRIVATE_LEN] = 12, PRIVATE_LEN * 8;
}
