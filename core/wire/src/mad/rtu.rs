//! RTU: the active side is ready to use the connection (IBTA volume 1, chapter 12.6.9). A DREP has the same
//! body layout.

use super::BODY_LEN;
use super::fields::mad;

/// Length of the private data in bytes.
pub const PRIVATE_LEN: usize = 224;

mad! {
    BODY_LEN, "local_comm_id={local_comm_id:#010x} remote_comm_id={remote_comm_id:#010x}";

    /// Communication id of the sender.
    local_comm_id: u32 = 0, 32;
    /// Communication id of the receiver.
    remote_comm_id: u32 = 4, 32;
    /// Private data, passed from the sender's program to the receiver's.
    private_data: [u8; PRIVATE_LEN] = 8, PRIVATE_LEN * 8;
}
