//! The interface between protocol and memory: what a packet asks the NIC to do, and the outcome.
//!
//! The responder turns a request packet into one [`Action`]; the NIC, which alone may touch memory, executes
//! it at once and answers with an [`Outcome`]. Both are small copies: a queue of them costs more than the
//! verb itself.

use crate::rc::{prism, strom};
use remora_wire::NakCode;

/// The two atomics of the verbs (IBTA vol. 1 §9.4.5).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// Store `swap` if the target equals `compare`.
    CompareSwap {
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// Add, wrapping.
    FetchAdd {
        /// Addend.
        add: u64,
    },
}

/// What the last packet of a message brings for its receive work request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Bytes of the whole message.
    pub len: u32,
    /// Immediate data.
    pub imm: Option<u32>,
    /// Key to invalidate before the completion is written.
    pub invalidate: Option<u32>,
    /// The sender asked for a solicited event.
    pub solicited: bool,
    /// It was a WRITE, not a SEND.
    pub write: bool,
}

/// What the NIC is to do with a request packet and its payload.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing: the packet was dropped, or answered by the machine itself.
    Nothing,
    /// WRITE: payload to `va`. `extent` bytes from `va` on must be writable through `key` (the rest of the
    /// message at its first packet, so that a bad WRITE touches nothing).
    Place {
        /// Remote key.
        key: u32,
        /// First byte.
        va: u64,
        /// Bytes to check.
        extent: u32,
    },
    /// Last packet of a WRITE with immediate data: as `Place`, then a receive work request is taken and
    /// completed. Without one nothing is placed and the outcome is RNR.
    PlaceAndNotify {
        /// Remote key.
        key: u32,
        /// First byte.
        va: u64,
        /// Bytes to check.
        extent: u32,
    },
    /// SEND: payload to the current receive work request at `offset`; at offset 0 of a new message one is
    /// taken first.
    Receive {
        /// Position in the message.
        offset: u32,
        /// The message starts here.
        first: bool,
        /// The message ends here: complete the receive.
        last: bool,
    },
    /// READ: check that `len` bytes at `va` may be read; they are fetched when the responses leave.
    Fetch {
        /// Remote key.
        key: u32,
        /// First byte.
        va: u64,
        /// Bytes.
        len: u32,
    },
    /// Execute an atomic on the 8 bytes at `va`; the outcome is the old value.
    Atomic {
        /// Remote key.
        key: u32,
        /// Target.
        va: u64,
        /// Which.
        atomic: Atomic,
    },
    /// A packet of a PRISM operation; the outcome is an [`Answer`](prism::Answer) at its last.
    Prism(prism::Packed),
    /// A packet of a request to a kernel, with its payload. If the kernel has no capacity, the packet is not
    /// taken and the outcome is RNR.
    Rpc(strom::Part),
}

const _: () = assert!(size_of::<Action>() <= 48, "an action travels in registers and one cache line");

/// The outcome of an action.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Done,
    /// An atomic was done; this was the old value.
    Value(u64),
    /// It is refused: the requester gets this NAK and the queue pair ends.
    Nak(NakCode),
    /// No receive work request: wait and send again.
    NotReady,
}
