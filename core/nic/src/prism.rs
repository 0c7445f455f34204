//! PRISM on this NIC (PRISM paper, §3, §4): work requests with indirection, allocation, enhanced atomics and chaining.
//!
//! Heads up: what a program asks for is in `request.rs`; on its way out it is a WQE (`submit.rs`) and then packets
//! (`egress.rs`), those of a chain in one frame (`bundle.rs`), and the short ones as one packet (`chained.rs`). At the responder `execute.rs` does what a packet asks for, by places that `reach.rs` finds, some of it a
//! little later (`prefetched.rs`); buffers come from a `free_list.rs`. `docs/PRISM.md` says what was decided where the paper leaves it open.

mod allocate;
mod bundle;
mod chained;
mod egress;
mod execute;
mod free_list;
mod number;
mod prefetched;
mod reach;
mod request;
mod submit;

use std::collections::VecDeque;

use remora_memory::{Mem, Scratch};
use remora_transport::Instant;
use remora_wire::prism::Verdict;

use crate::nic::Shared;
use crate::queue_pair::QueuePair;
pub(crate) use egress::{emit_kept, emit_request, put_result};
pub(crate) use free_list::FreeLists;
use free_list::Pin;
pub use free_list::{FreeListFacts, FreeListInit};
pub(crate) use prefetched::{Prefetched, waits};
pub use remora_transport::rc::prism::COPY_MAX;
pub use remora_wire::prism::operands::{Mode, Number, Operand, Repr as Operands};
pub use remora_wire::prism::{SCRATCH, SCRATCH_LEN, Verdict as Outcome};
pub use request::{Address, Data, Operation, WorkRequest, slots, write};

/// The operation whose packets are arriving.
#[derive(Debug, Default)]
enum OperationInProgress {
    #[default]
    Nothing,
    /// It is not executed, and says so at its end.
    Passed(Verdict),
    /// The first `limit` bytes go to this place; of an ALLOCATE, into this buffer.
    Writing { key: u32, va: u64, limit: u32, pin: Option<Pin>, buffer: Option<Pin>, redirect: Option<u64> },
}

/// What the operations of a peer have come to.
struct ResponderState {
    /// How the last one ended.
    last: Verdict,
    in_progress: OperationInProgress,
    /// Buffers that answers still to be asked for may be read from, by the number of the operation.
    pins: VecDeque<(u64, Pin)>,
}

/// What a queue pair has for a peer that agreed on PRISM.
pub(crate) struct Prism {
    /// Its scratch memory; lent when its first operation comes.
    scratch: Option<Scratch>,
    state: ResponderState,
    /// How many messages there were when the last operation ended: if there are more, plain ones came between, which succeed if they
    /// are executed.
    counted: u32,
    /// When the peer will have given up asking.
    released: Instant,
    /// How long it goes on asking.
    patience_ns: u64,
}

impl Prism {
    fn new(answers: u8, patience_ns: u64) -> Prism {
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

    /// The peer asks for something. `kept_from`: what it could ask for again from there on; `msn`: the messages executed so far.
    fn begin(&mut self, now: Instant, mem: Mem<'_>, (kept_from, msn): (u64, u32), lists: &mut FreeLists) {
        self.state.unpin(kept_from, lists);
        self.released = now.after(self.patience_ns);
        self.lend_scratch(mem);
        if msn != self.counted {
            self.state.last = Verdict::Done;
        }
    }

    /// Its scratch memory; none if there is none left.
    fn lend_scratch(&mut self, mem: Mem<'_>) -> Option<&Scratch> {
        if self.scratch.is_none() {
            self.scratch = mem.lend_scratch().ok();
        }
        self.scratch.as_ref()
    }
}

impl ResponderState {
    /// Answers before number `kept_from` cannot be asked for any more.
    fn unpin(&mut self, kept_from: u64, lists: &mut FreeLists) {
        while self.pins.front().is_some_and(|(number, _)| *number < kept_from) {
            if let Some((_, pin)) = self.pins.pop_front() {
                lists.unpin(pin);
            }
        }
    }

    /// The buffer of an operation that never came to its end goes back where it was taken from.
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

impl QueuePair {
    /// On the way to RTR: the peer speaks PRISM.
    pub(crate) fn enable_prism(&mut self) {
        match (&mut self.connection, &mut self.irn) {
            (Some(connection), _) => connection.responder.enable_prism(),
            (None, Some(irn)) => irn.responder.enable_prism(),
            (None, None) => return,
        }
        let parameters = &self.attributes.parameters;
        // Its patience is not known; that it is ours is what set-up makes of both sides. Twice that covers the way.
        let patience = parameters.timeout_ns.saturating_mul(2 * (u64::from(parameters.retry_cnt) + 1));
        self.prism = Some(Box::new(Prism::new(parameters.max_dest_rd_atomic, patience)));
    }

    /// Has its peer agreed?
    #[inline(always)]
    pub(crate) fn has_prism(&self) -> bool {
        self.prism.is_some()
    }

    /// The connection ends: what it holds of free lists goes back.
    pub(crate) fn end_prism(&mut self, shared: &mut Shared) {
        let Some(mut prism) = self.prism.take() else { return };
        prism.state.abandon(&mut shared.free_lists);
        prism.state.unpin(u64::MAX, &mut shared.free_lists);
    }

    /// When `expire_prism` wants to be called.
    #[inline(always)]
    pub(crate) fn deadline_prism(&self) -> Instant {
        self.prism.as_ref().map_or(Instant::NEVER, |prism| prism.released)
    }

    /// The peer has been silent for so long that it asks for no answer again.
    pub(crate) fn expire_prism(&mut self, now: Instant, shared: &mut Shared) {
        let Some(prism) = &mut self.prism else { return };
        if now < prism.released {
            return;
        }
        prism.released = Instant::NEVER;
        let (forgotten, waits) = match (&mut self.connection, &mut self.irn) {
            (Some(connection), _) => (connection.responder.forget(), true),
            // Where no timer runs nothing is sent again, until the peer says something.
            (None, Some(irn)) => (irn.responder.forget(), irn.responder.repeats()),
            (None, None) => (true, false),
        };
        if forgotten {
            prism.state.unpin(u64::MAX, &mut shared.free_lists);
        } else if waits {
            prism.released = now.after(prism.patience_ns);
        }
    }
}
