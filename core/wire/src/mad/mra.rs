//! MRA: confirms the receipt of a REQ or REP whose answer takes longer (IBTA volume 1, chapter 12.6.6).

use super::fields::mad;
use super::{Answered, BODY_LEN};

/// Length of the private data in bytes.
pub const PRIVATE_LEN: usize = 222;

mad! {
    BODY_LEN,
    "local_comm_id={local_comm_id:#010x} remote_comm_id={remote_comm_id:#010x} answered={answered:?} \
     service_timeout={service_timeout}";

    /// Communication id of the sender.
    local_comm_id: u32 = 0, 32;
    /// Communication id of the receiver.
    remote_comm_id: u32 = 4, 32;
    /// Message that this MRA answers.
    answered: Answered = 8, 2;
    /// Code of the time that the answer may take, 5 bits.
    service_timeout: u8 = 9, 5;
    /// Private data, passed from the sender's program to the receiver's.
    private_data: [u8; PRIVATE_LEN] = 10, PRIVATE_LEN * 8;
}
