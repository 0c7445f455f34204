//! PRISM operations (PRISM paper, §3, §4): indirection, allocation, enhanced atomics and chaining.
//!
//! A queue pair holds the state of this file, and the NIC the free lists of buffers (`free_list.rs`). Neither
//! knows a queue pair, nor do `request.rs`, which defines the program's work requests, `packet.rs` and
//! `egress.rs`, which build packets, and `reach.rs`, which checks addresses.
//!
//! The turn and the receipt of packets call the others. `submit.rs` turns a WQE into a message. `bundle.rs`
//! sends an operation list in one frame, and `operation_list.rs` one of short operations as one packet. On
//! the responder, `execute.rs` executes a packet, and `prefetched.rs` delays indirect READs.
//! `docs/reference/prism.md` lists the decisions that the paper leaves open.

mod allocate;
mod bundle;
mod egress;
mod execute;
mod free_list;
mod nic;
mod number;
mod operation_list;
mod packet;
mod prefetched;
mod reach;
mod request;
mod result;
mod submit;

use std::collections::VecDeque;

use remora_memory::{Mem, Scratch};
use remora_transport::Instant;

use crate::emit::Sent;
pub(crate) use bundle::{request_bundle, respond_bundle};
pub(crate) use egress::{emit_kept, emit_request, put_result};
pub(crate) use execute::{place_in_scratch, serve_prism};
pub(crate) use free_list::FreeLists;
use free_list::Pin;
pub use free_list::{FreeListFacts, FreeListInit, MAX_WORDS};
pub(crate) use operation_list::take_operation_list;
pub(crate) use prefetched::{Prefetched, prefetch_pointer, waits};
pub use remora_transport::rc::prism::COPY_MAX;
pub use remora_wire::prism::operands::{Mode, Number, Operand, Repr as Operands};
pub use remora_wire::prism::{SCRATCH, SCRATCH_LEN, Verdict};
pub(crate) use request::write;
pub use request::{Address, Data, Operation, WorkRequest};
pub(crate) use submit::submit_prism;

/// The way in which PRISM handles the next request to be sent.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextRequest {
    /// The request is sent as a plain packet.
    Plain,
    /// The request waits for responses to earlier ones.
    Waits,
    /// The request was passed to the port, alone or in a bundle.
    Emitted(Sent),
}

/// The operation whose packets are being received.
#[derive(Debug, Default)]
enum OperationInProgress {
    #[default]
    Nothing,
    /// The operation is skipped, and its response has this verdict.
    Passed(Verdict),
    /// The first `limit` bytes are written at `va`; those of an ALLOCATE are written into `buffer`.
    Writing { key: u32, va: u64, limit: u32, pin: Option<Pin>, buffer: Option<Pin>, redirect: Option<u64> },
}

/// State of the responder for the peer's operations.
struct ResponderState {
    /// Verdict of the last operation.
    last: Verdict,
    in_progress: OperationInProgress,
    /// Pinned buffers from which responses may still be read, with the number of the operation.
    pins: VecDeque<(u64, Pin)>,
}

/// PRISM state of a queue pair.
pub(crate) struct Prism {
    /// Scratch memory of the connection, allocated when the first operation arrives.
    scratch: Option<Scratch>,
    state: ResponderState,
    /// MSN at the end of the last operation. A higher MSN means that plain messages, all successful, followed
    /// it.
    counted: u32,
    /// Time after which the peer retransmits no request.
    released: Instant,
    /// Duration in nanoseconds for which the peer retransmits a request.
    patience_ns: u64,
}

impl Prism {
    /// Creates the state for a peer that has at most `answers` READs and atomics outstanding, and retransmits
    /// a request for `patience_ns` nanoseconds.
    pub(crate) fn new(answers: u8, patience_ns: u64) -> Prism {
        Prism {
            scratch: None,
            state: ResponderState {
                last: Verdict::Done,
                in_progress: OperationInProgress::Nothing,
                pins: VecDeque::with_capacity(usize::from(answers) + 1),
            },
            counted: 0,
            released: Instant::NEVER,
            patience_ns,
        }
    }

    /// Prepares for an incoming request. `kept_from` is the oldest operation that the peer may still
    /// retransmit, `msn` the message sequence number.
    fn begin(&mut self, now: Instant, mem: Mem<'_>, kept_from: u64, msn: u32, lists: &mut FreeLists) {
        self.state.unpin(kept_from, lists);
        self.released = now.after(self.patience_ns);
        self.lend_scratch(mem);
        if msn != self.counted {
            self.state.last = Verdict::Done;
        }
    }

    /// Ends the connection and returns its buffers to their free lists.
    pub(crate) fn end(&mut self, lists: &mut FreeLists) {
        self.state.abandon(lists);
        self.state.unpin(u64::MAX, lists);
    }

    /// Asserts that pins are in order and belong to responses before number `upcoming`.
    pub(crate) fn check(&self, upcoming: u64) {
        let pins = &self.state.pins;
        let ends = pins.front().zip(pins.back());
        assert!(
            ends.is_none_or(|((first, _), (last, _))| first <= last && *last <= upcoming),
            "pins are of operations that were executed, in their order: {ends:?}, {upcoming}"
        );
    }

    /// Returns the time at which `expire` is due.
    #[inline(always)]
    pub(crate) fn deadline(&self) -> Instant {
        self.released
    }

    /// Handles the deadline after which a silent peer no longer retransmits. `forget` drops the responses
    /// that the responder keeps, and returns two flags: whether the responses are gone, and otherwise whether
    /// to try again later.
    pub(crate) fn expire(
        &mut self,
        now: Instant,
        lists: &mut FreeLists,
        forget: impl FnOnce() -> (bool, bool),
    ) {
        if now < self.released {
            return;
        }
        self.released = Instant::NEVER;
        let (forgotten, again) = forget();
        if forgotten {
            self.state.unpin(u64::MAX, lists);
        } else if again {
            self.released = now.after(self.patience_ns);
        }
    }

    /// Returns the scratch memory, and allocates it if necessary. `None` if all of it is in use by other
    /// connections.
    fn lend_scratch(&mut self, mem: Mem<'_>) -> Option<&Scratch> {
        if self.scratch.is_none() {
            self.scratch = mem.lend_scratch().ok();
        }
        self.scratch.as_ref()
    }
}

impl ResponderState {
    /// Unpins the buffers of responses before number `kept_from`, whose requests the peer cannot retransmit.
    fn unpin(&mut self, kept_from: u64, lists: &mut FreeLists) {
        while self.pins.front().is_some_and(|(number, _)| *number < kept_from) {
            if let Some((_, pin)) = self.pins.pop_front() {
                lists.unpin(pin);
            }
        }
    }

    /// Abandons the current operation and returns its buffer to the free list.
    fn abandon(&mut self, lists: &mut FreeLists) {
        if let OperationInProgress::Writing { pin, buffer, .. } = std::mem::take(&mut self.in_progress) {
            if let Some(pin) = pin {
                lists.unpin(pin);
            }
            if let Some(buffer) = buffer {
                lists.give_back(buffer);
            }
        }
    }
}
