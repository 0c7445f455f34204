//! State that the NIC keeps for a send work request until the request has completed.

use remora_memory::Key;

use crate::ring::{Ring, Word};
use crate::wqe::{ID_BITS, WqeOpcode, flag};

/// Location of a message's bytes in local memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum List {
    /// A single scatter/gather element, held in the context.
    One,
    /// This number of scatter/gather elements. The context holds the first one, the queue's memory the
    /// others.
    Many(u8),
    /// Inline data, which follows the WQE in the queue's memory.
    Inline,
    /// A buffer of the StRoM kernel that sends an answer. `local` holds the number of the buffer and `lkey`
    /// that of the kernel.
    Answer,
}

/// State of one message from its WQE, kept until the message has completed.
#[derive(Copy, Clone, Debug)]
pub(crate) struct WqeContext {
    pub header: u64,
    pub local: u64,
    pub len: u32,
    pub lkey: Key,
    pub list: List,
    /// Upper 16 bits of the work request id. The header holds the lower 48 bits.
    pub id_high: u16,
    /// First slot of the WQE; `end` is the slot after its last one.
    pub index: u64,
    pub end: u64,
    /// Number of the peer's shared receive queue (XRC only).
    pub srq: u32,
}

const _: () = assert!(size_of::<WqeContext>() <= 48, "each message on its way has one");

impl WqeContext {
    pub(crate) fn id(&self) -> u64 {
        self.header >> 16 | u64::from(self.id_high) << ID_BITS
    }

    pub(crate) fn signaled(&self) -> bool {
        self.header >> 8 & u64::from(flag::SIGNALED) != 0
    }

    /// Returns true if the program does not wait for the acknowledgement of the message: it is an unsignaled
    /// message to the peer's program, and a quarter of the slots of its queue are free.
    #[inline]
    pub(crate) fn needs_no_ack(&self, ring: &Ring) -> bool {
        let opcode = WqeOpcode(self.header as u8);
        !self.signaled()
            && matches!(opcode, WqeOpcode::SEND | WqeOpcode::SEND_IMM | WqeOpcode::WRITE_IMM)
            && self.end.wrapping_sub(ring.word(Word::Consumed)) <= ring.slots() - ring.slots() / 4
    }

    /// Returns true if the message is an answer of a local StRoM kernel rather than a program's work request.
    pub(crate) fn is_answer(&self) -> bool {
        WqeOpcode(self.header as u8) == WqeOpcode::ANSWER
    }
}
