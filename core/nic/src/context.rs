//! What the NIC keeps of a work request until it has completed.

use remora_memory::Key;

use crate::wqe::{ID_BITS, WqeOpcode, flag};

/// Where the bytes of a message are in local memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum List {
    /// In one element, which the context holds.
    One,
    /// In so many elements: the context holds the first, the queue's memory the others.
    Many(u8),
    /// Behind the WQE in the queue's memory.
    Inline,
    /// In a block of the kernel that answers. The block stands in place of the address, the kernel in place
    /// of the key.
    Answer,
}

/// What the NIC keeps of a message's WQE until the message has ended.
#[derive(Copy, Clone, Debug)]
pub(crate) struct WqeContext {
    pub header: u64,
    pub local: u64,
    pub len: u32,
    pub lkey: Key,
    pub list: List,
    /// The upper 16 bits of the program's id; the header has the others.
    pub id_high: u16,
    /// First slot of the WQE, and one past its last.
    pub index: u64,
    pub end: u64,
    /// The peer's shared receive queue (XRC).
    pub srq: u32,
}

const _: () = assert!(size_of::<WqeContext>() <= 48, "each message on its way has one");

impl WqeContext {
    pub fn id(&self) -> u64 {
        self.header >> 16 | u64::from(self.id_high) << ID_BITS
    }

    pub fn signaled(&self) -> bool {
        self.header >> 8 & u64::from(flag::SIGNALED) != 0
    }

    /// Does a kernel of this NIC send it?
    pub fn is_answer(&self) -> bool {
        WqeOpcode(self.header as u8) == WqeOpcode::ANSWER
    }
}
