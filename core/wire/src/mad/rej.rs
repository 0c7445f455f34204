//! REJ: refuses a REQ or REP, or abandons a connection before it is established (IBTA volume 1, chapter
//! 12.6.7).

use super::fields::mad;
use super::{Answered, BODY_LEN, INFO_LEN, RejectReason};

/// Length of the private data in bytes.
pub const PRIVATE_LEN: usize = 148;

mad! {
    BODY_LEN,
    "local_comm_id={local_comm_id:#010x} remote_comm_id={remote_comm_id:#010x} answered={answered:?} \
     reason={reason}",
    check view => usize::from(view.info_len()) <= INFO_LEN;

    /// Communication id of the sender; 0 if it has none for the connection.
    local_comm_id: u32 = 0, 32;
    /// Communication id of the receiver.
    remote_comm_id: u32 = 4, 32;
    /// Message that is refused.
    answered: Answered = 8, 2;
    /// Number of valid bytes of the additional information, 0 to 72, in 7 bits.
    info_len: u8 = 9, 7;
    /// Reason of the refusal.
    reason: RejectReason = 10, 16;
    /// Additional information: the value that the sender would accept, or a GUID, depending on the reason.
    info: [u8; INFO_LEN] = 12, INFO_LEN * 8;
    /// Private data, passed from the sender's program to the receiver's.
    private_data: [u8; PRIVATE_LEN] = 84, PRIVATE_LEN * 8;
}

impl Repr {
    /// Returns a refusal. Truncates `info` and `private_data` to the length of their fields.
    pub fn new(
        local_comm_id: u32,
        remote_comm_id: u32,
        answered: Answered,
        reason: RejectReason,
        info: &[u8],
        private_data: &[u8],
    ) -> Repr {
        let info_len = info.len().min(INFO_LEN);
        let mut repr = Repr {
            local_comm_id,
            remote_comm_id,
            answered,
            info_len: info_len as u8,
            reason,
            info: [0; INFO_LEN],
            private_data: [0; PRIVATE_LEN],
        };
        repr.info[..info_len].copy_from_slice(&info[..info_len]);
        let private_len = private_data.len().min(PRIVATE_LEN);
        repr.private_data[..private_len].copy_from_slice(&private_data[..private_len]);
        repr
    }

    /// Returns the valid bytes of the additional information.
    pub fn info(&self) -> &[u8] {
        &self.info[..usize::from(self.info_len).min(INFO_LEN)]
    }
}
