//! The interface between protocol and memory: the action that a packet requests from the NIC, and the
//! outcome of the action.
//!
//! The responder turns each request packet into one [`Action`]. The NIC, which alone may access memory,
//! executes the action at once and answers with an [`Outcome`]. Both types are small and `Copy`. They are
//! not queued, because a queue would cost more than the operation itself.

use crate::rc::{prism, strom};
use remora_wire::NakCode;

/// The two atomic operations (IBTA vol. 1 §9.4.5).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// Compare and swap: stores `swap` if the target equals `compare`.
    CompareSwap {
        /// Expected value of the target.
        compare: u64,
        /// New value of the target.
        swap: u64,
    },
    /// Fetch and add: adds `add` to the target, wrapping on overflow.
    FetchAdd {
        /// Addend of the FETCH_ADD.
        add: u64,
    },
}

/// Information that the last packet of a message supplies for the completion of its receive work request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Length of the whole message in bytes.
    pub len: u32,
    /// Immediate data; `None` if the message has none.
    pub imm: Option<u32>,
    /// Key to invalidate before the completion is written (SEND with Invalidate).
    pub invalidate: Option<u32>,
    /// True if the sender requested a solicited event.
    pub solicited: bool,
    /// True for a WRITE with immediate data, false for a SEND.
    pub write: bool,
}

/// The operation that the NIC must execute for a request packet and its payload.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing to execute: the packet was dropped, or the state machine answers it without memory.
    Nothing,
    /// WRITE: copies the payload to `va`. All `extent` bytes from `va` must be writable through `key`. On
    /// the first packet, `extent` covers the whole message, so that a WRITE without permission changes
    /// nothing.
    Place {
        /// Remote key of the accessed region.
        key: u32,
        /// Virtual address of the first byte.
        va: u64,
        /// Number of bytes to check, at least the length of the payload.
        extent: u32,
    },
    /// Last packet of a WRITE with immediate data: executes a `Place`, then takes and completes a receive
    /// work request. If no receive work request is posted, nothing is written and the outcome is
    /// [`Outcome::NotReady`].
    PlaceAndNotify {
        /// Remote key of the accessed region.
        key: u32,
        /// Virtual address of the first byte.
        va: u64,
        /// Number of bytes to check, at least the length of the payload.
        extent: u32,
    },
    /// SEND: copies the payload into the current receive work request at `offset`. The first packet of a
    /// message takes a new receive work request.
    Receive {
        /// Offset of the payload in the message, in bytes.
        offset: u32,
        /// True for the first packet of the message.
        first: bool,
        /// True for the last packet of the message, which completes the receive work request.
        last: bool,
    },
    /// READ: checks that `len` bytes at `va` are readable. The bytes are read later, when the responses are
    /// sent.
    Fetch {
        /// Remote key of the accessed region.
        key: u32,
        /// Virtual address of the first byte.
        va: u64,
        /// Length in bytes.
        len: u32,
    },
    /// Executes an atomic operation on the 8 bytes at `va`. The outcome is [`Outcome::Value`] with the old
    /// value.
    Atomic {
        /// Remote key of the accessed region.
        key: u32,
        /// Virtual address of the 8 bytes.
        va: u64,
        /// The operation and its operands.
        atomic: Atomic,
    },
    /// Executes one packet of a PRISM operation. The last packet of the operation has an
    /// [`Answer`](prism::Answer).
    Prism(prism::Packed),
    /// Passes one packet of a request, with its payload, to a kernel. If the kernel has no capacity, the
    /// packet is dropped and the outcome is [`Outcome::NotReady`].
    Rpc(strom::Part),
}

const _: () = assert!(size_of::<Action>() <= 48, "an action fits in registers and one cache line");

/// The result of executing an [`Action`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The action was executed.
    Done,
    /// An atomic operation was executed; holds the old value.
    Value(u64),
    /// The request is refused: the responder sends this NAK and the queue pair enters the error state.
    Nak(NakCode),
    /// The request is refused and the queue pair enters the error state without a NAK, once the requests
    /// before it are acknowledged (IBTA vol. 1 §9.9.6.3, class J).
    End,
    /// No receive work request is posted, or a kernel is busy. The responder sends an RNR NAK, and the
    /// requester retries later.
    NotReady,
}
