//! PRISM on this NIC (PRISM paper, §3, §4): work requests with indirection, allocation, enhanced atomics and
//! chaining.
//!
//! Heads up: a program's request is in `request.rs`. `submit.rs` makes a message of its WQE, `packet.rs` and
//! `egress.rs` make packets. A chain leaves in one frame (`bundle.rs`), a chain of short operations as one
//! packet (`chained.rs`). At the responder `execute.rs` executes a packet, `reach.rs` checks its addresses,
//! and `prefetched.rs` delays READs behind pointers. Buffers come from a `free_list.rs`. `docs/PRISM.md` has
//! the decisions that the paper leaves open.

mod allocate;
mod bundle;
mod chained;
mod egress;
mod execute;
mod free_list;
mod nic;
mod number;
mod packet;
mod prefetched;
mod reach;
mod request;
mod result;
mod submit;

use std::collections::VecDeque;

use remora_memory::{Mem, Scratch};
use remora_transport::Instant;
use remora_wire::prism::Verdict;

use crate::emit::Sent;
pub(crate) use bundle::{request_bundle, respond_bundle};
pub(crate) use chained::take_chain;
pub(crate) use egress::{emit_kept, emit_request, put_result};
pub(crate) use execute::{place_in_scratch, serve_prism};
pub(crate) use free_list::FreeLists;
use free_list::Pin;
pub use free_list::{FreeListFacts, FreeListInit};
pub(crate) use prefetched::{Prefetched, prefetch_pointer, waits};
pub use remora_transport::rc::prism::COPY_MAX;
pub use remora_wire::prism::operands::{Mode, Number, Operand, Repr as Operands};
pub use remora_wire::prism::{SCRATCH, SCRATCH_LEN, Verdict as Outcome};
pub use request::{Address, Data, Operation, WorkRequest, write};
pub(crate) use submit::submit_prism;

/// How PRISM handles the request that is next to leave.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextRequest {
    /// It leaves by its own plan.
    Plain,
    /// It waits for answers.
    Waits,
    /// It was handed to the port, alone or with others.
    Emitted(Sent),
}

/// The operation in progress: its packets are arriving.
#[derive(Debug, Default)]
enum OperationInProgress {
    #[default]
    Nothing,
    /// The operation is not executed; its answer has this verdict.
    Passed(Verdict),
    /// The first `limit` bytes go to `va`; those of an ALLOCATE go into `buffer`.
    Writing { key: u32, va: u64, limit: u32, pin: Option<Pin>, buffer: Option<Pin>, redirect: Option<u64> },
}

/// The responder's state of the peer's operations.
struct ResponderState {
    /// How the last one ended.
    last: Verdict,
    in_progress: OperationInProgress,
    /// Buffers that answers may still be read from, by the number of the operation.
    pins: VecDeque<(u64, Pin)>,
}

/// What a queue pair has for a peer that agreed on PRISM.
pub(crate) struct Prism {
    /// The scratch memory; it is lent when the first operation arrives.
    scratch: Option<Scratch>,
    state: ResponderState,
    /// The message sequence number when the last operation ended. A higher one now means that plain messages
    /// came between; they succeeded.
    counted: u32,
    /// When the peer repeats no request any more.
    released: Instant,
    /// How long the peer repeats a request, in nanoseconds.
    patience_ns: u64,
}

impl Prism {
    /// For a peer that has at most `answers` READs and atomics outstanding, and repeats a request for
    /// `patience_ns`.
    pub fn new(answers: u8, patience_ns: u64) -> Prism {
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

    /// A request arrives. `kept_from` is the oldest operation that the peer may still repeat, `msn` the
    /// message sequence number.
    fn begin(&mut self, now: Instant, mem: Mem<'_>, kept_from: u64, msn: u32, lists: &mut FreeLists) {
        self.state.unpin(kept_from, lists);
        self.released = now.after(self.patience_ns);
        self.lend_scratch(mem);
        if msn != self.counted {
            self.state.last = Verdict::Done;
        }
    }

    /// The connection ends: its buffers go back to their free lists.
    pub fn end(&mut self, lists: &mut FreeLists) {
        self.state.abandon(lists);
        self.state.unpin(u64::MAX, lists);
    }

    /// Asserts that pins are of answers before number `upcoming`, in their order.
    pub fn check(&self, upcoming: u64) {
        let pins = &self.state.pins;
        let ends = pins.front().zip(pins.back());
        assert!(
            ends.is_none_or(|((first, _), (last, _))| first <= last && *last <= upcoming),
            "pins are of operations that were executed, in their order: {ends:?}, {upcoming}"
        );
    }

    /// When `expire` is due.
    #[inline(always)]
    pub fn deadline(&self) -> Instant {
        self.released
    }

    /// At its deadline the peer has been silent for so long that it repeats no request. `forget` drops the
    /// answers that the responder keeps; it returns whether they are gone and, if not, whether to try again
    /// later.
    pub fn expire(&mut self, now: Instant, lists: &mut FreeLists, forget: impl FnOnce() -> (bool, bool)) {
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

    /// The scratch memory. None: all of it is lent to other connections.
    fn lend_scratch(&mut self, mem: Mem<'_>) -> Option<&Scratch> {
        if self.scratch.is_none() {
            self.scratch = mem.lend_scratch().ok();
        }
        self.scratch.as_ref()
    }
}

impl ResponderState {
    /// Unpins the buffers of answers before number `kept_from`, which the peer cannot repeat any more.
    fn unpin(&mut self, kept_from: u64, lists: &mut FreeLists) {
        while self.pins.front().is_some_and(|(number, _)| *number < kept_from) {
            if let Some((_, pin)) = self.pins.pop_front() {
                lists.unpin(pin);
            }
        }
    }

    /// The operation in progress never ends: its buffer goes back to its free list.
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
