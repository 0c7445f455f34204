//! StRoM on this NIC (StRoM paper, §5): kernels take requests and bytes from the wire, read and write the
//! memory of the program that deployed them, and answer by WRITEs.
//!
//! Heads up: this file has the trait of a kernel, `streams.rs` its streams. `table.rs` holds the deployed
//! kernels; each has lanes (`lane.rs`), which make its steps, and `lane_ref.rs` finds a lane. A packet
//! arrives in `serve.rs`, an answer leaves by `answer.rs`, `submit.rs` is the requester's side.
//! `placement.rs` and `checked.rs` have the kernels beside RPC. The other files are kernels. `docs/STROM.md`
//! has the decisions that the paper leaves open.

mod aggregate;
mod answer;
mod base;
mod checked;
mod consistency;
mod delayed_ack;
mod filter;
mod get;
mod hyperloglog;
mod inbox;
mod lane;
mod lane_ref;
mod meter;
mod nic;
mod number;
mod placement;
mod serve;
mod shipped;
mod shuffle;
mod streams;
mod submit;
mod table;
mod traversal;

use std::collections::VecDeque;

use remora_transport::Instant;
use remora_transport::rc::strom::Part;
use remora_wire::Qpn;

pub use aggregate::{Aggregate, Sums};
pub use base::SPARE;
pub(crate) use checked::{CheckResult, check_reply, checker, execute_checked, waits_for_bytes};
pub use consistency::{CRC_LEN, Consistency, Object, crc64};
pub use delayed_ack::DELAYED_ACK_NS;
pub(crate) use delayed_ack::{clear_delayed_ack, execute_strom, maybe_delay_ack};
pub use filter::{Filter, Predicate, Scan};
pub use get::{Get, Lookup, Slot};
pub use hyperloglog::{Ask, HyperLogLog};
pub use meter::{Metered, Steps};
pub use placement::Invocation;
pub(crate) use placement::{execute_tapped, is_tapped, place_tapped};
pub(crate) use serve::{enable_strom, hand_over, hand_over_kept, keep_rpc, serve_rpc};
pub use shipped::Shipped;
pub use shuffle::{Partition, Shuffle, histogram};
pub use streams::{DMA, Input, PACKET, Streams, What};
pub(crate) use submit::submit_strom;
pub(crate) use table::Kernels;
pub use table::{KernelFacts, KernelInit};

pub use remora_wire::strom::{Ending, HEAD_LEN, Status, TAG_MASK};
pub use traversal::{Shape, Traversal, Walk};

use base::{Block, KernelId, LaneId};
use checked::Recheck;

/// What runs on the data path (the paper's Listing 1). It lives in a *lane*: it serves one queue pair at a
/// time, and all requests of that one in order.
///
/// A kernel owns all its memory from the start: a step allocates nothing, waits for nothing, and takes about
/// as long as copying [`DMA`] bytes. Longer work takes several steps.
pub trait Kernel: Send {
    /// One step: takes what there is of input and of bytes read, and gives at most one command and one
    /// message.
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress;

    /// Forgets everything: its queue pair is gone, or its request ends with an error.
    fn reset(&mut self);

    /// Address and length of what the kernel will read for a request with these parameters: first, or after
    /// it has `seen` the first bytes (64 at most). It is a hint to prefetch: requests that arrive together
    /// then wait for memory together.
    fn prefetch_hint(&self, params: &[u8], seen: Option<&[u8]>) -> Option<(u64, u32)> {
        let _ = (params, seen);
        None
    }

    /// Its check of READs, if it checks their bytes before they leave.
    fn checks(&mut self) -> Option<&mut dyn Check> {
        None
    }

    /// Its view of WRITEs, if it only looks at their bytes: then they cost no step, and it sees them on their
    /// way to memory. Otherwise they are input after they have been placed.
    fn looks(&mut self) -> Option<&mut dyn Look> {
        None
    }
}

/// Checks the bytes of READs before they leave (the paper's send kernel). It keeps no state between READs.
pub trait Check {
    /// Bytes of memory behind those of the READ that it also wants to see, [`BEHIND`] at most. They do not
    /// travel.
    fn behind(&self) -> usize;

    /// The verdict on the bytes, which were read `before` times for this response already.
    fn check(&mut self, bytes: &[u8], behind: &[u8], before: u32) -> Verdict;
}

/// Bytes that a [`Check`] sees behind those of the READ, at most.
pub const BEHIND: usize = 64;

/// Times that bytes are read in a row for one response, at most.
pub const READINGS: u32 = 64;
/// Nanoseconds until bytes are read again, after [`READINGS`] readings in a row.
pub const AGAIN_NS: u64 = 10_000;
/// Nanoseconds for which bytes are read again; then the READ ends with an error of the responder.
pub const UNFIT_NS: u64 = 50_000_000;

/// What happens to bytes that were checked.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They leave.
    Leave,
    /// They are read again: [`READINGS`] times at once, and later, for [`UNFIT_NS`].
    Again,
    /// They do not leave: the READ ends with an error of the responder.
    Refuse,
}

/// Looks at bytes on their way.
pub trait Look {
    /// The next bytes of a packet, in pieces of [`LOOKED_AT`] but for the last.
    fn look(&mut self, bytes: &[u8]);
}

/// Bytes of a packet that are looked at together: they are in the cache, and the next ones are prefetched
/// meanwhile.
pub const LOOKED_AT: usize = 512;

/// What a kernel returns from a step.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It has more to do now.
    Again,
    /// It waits for input, or for the bytes of a command, and holds state of the queue pair that it serves.
    Waits,
    /// It waits for input and holds no state: its lane may serve another queue pair.
    Rests,
}

/// Steps that a lane makes for one packet, or in one turn. The acknowledgement of a packet waits for so many
/// at most.
pub const STEPS: u32 = 32;

/// Where answers go in the requester's memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The address of the first byte.
    pub addr: u64,
    /// Its key.
    pub rkey: u32,
    /// Bytes that it holds.
    pub len: u32,
}

impl Place {
    /// The bytes that parameters begin with.
    pub fn emit(&self) -> [u8; HEAD_LEN] {
        let mut bytes = [0; HEAD_LEN];
        remora_wire::reth::Repr { va: self.addr, rkey: self.rkey, dma_len: self.len }.emit(&mut bytes);
        bytes
    }
}

/// An answer, or a part of one, on its way.
#[derive(Copy, Clone, Debug)]
struct Sent {
    /// Number of its message.
    number: u64,
    block: Block,
}

/// A packet for a kernel that arrived ahead of the order.
struct Early {
    part: Option<Part>,
    len: u16,
    bytes: Box<[u8]>,
}

/// What a queue pair has for a peer that agreed on StRoM.
pub(crate) struct Strom {
    /// Answers on their way, oldest first.
    sent: VecDeque<Sent>,
    /// A lane waits until a message of this queue pair ends.
    waited_for: bool,
    /// StRoM is agreed with the peer; otherwise kernels only see WRITEs and READs.
    agreed: bool,
    /// When the delayed ACK leaves.
    delayed_ack: Instant,
    /// The last turn ended with a response still to send.
    pub(crate) owed_ack: bool,
    /// Over IRN: packets that arrived ahead of the order.
    early: Box<[Early]>,
    /// The lane that served it last.
    lane: LaneId,
    /// The kernel that sees what is written.
    tap: Option<KernelId>,
    /// The kernel that checks what is read.
    checker: Option<KernelId>,
    /// The bytes of a READ failed the check and will be read again.
    recheck: Option<Recheck>,
    /// The kernel that serves the message in progress. None: no kernel has its op-code.
    serving: Option<KernelId>,
}

impl Strom {
    /// For a queue pair of so many messages, with `early` packets of `mtu` bytes that may arrive ahead of the
    /// order.
    fn new(messages: u64, early: u32, mtu: u32) -> Strom {
        let empty = |_| Early { part: None, len: 0, bytes: vec![0; mtu as usize].into_boxed_slice() };
        Strom {
            sent: VecDeque::with_capacity(messages as usize),
            waited_for: false,
            agreed: false,
            delayed_ack: Instant::NEVER,
            owed_ack: false,
            early: (0..early).map(empty).collect(),
            lane: LaneId::NONE,
            tap: None,
            checker: None,
            recheck: None,
            serving: None,
        }
    }

    /// Messages before number `oldest` have ended: the blocks of their answers are free, and a lane that
    /// waited for one can go on.
    #[inline(never)]
    pub(crate) fn answers_left(&mut self, oldest: u64, kernels: &mut Kernels, qp: Qpn) {
        while let Some(sent) = self.sent.front().filter(|sent| sent.number < oldest) {
            kernels.give_back(sent.block);
            self.sent.pop_front();
        }
        if std::mem::take(&mut self.waited_for) {
            kernels.wake(qp);
        }
    }

    /// The connection ends: its lanes and the blocks of its answers are free.
    pub(crate) fn end(&mut self, kernels: &mut Kernels, qp: Qpn) {
        while let Some(sent) = self.sent.pop_front() {
            kernels.give_back(sent.block);
        }
        kernels.forget(qp);
    }

    /// Asserts that its answers on their way are in the order of their messages.
    pub(crate) fn check(&self) {
        let ends = self.sent.front().zip(self.sent.back());
        assert!(
            ends.is_none_or(|(first, last)| first.number <= last.number),
            "answers on their way are in the order of their messages: {ends:?}"
        );
    }

    /// When `expire` is due.
    #[inline(always)]
    pub(crate) fn deadline(&self) -> Instant {
        match &self.recheck {
            None => self.delayed_ack,
            Some(recheck) => self.delayed_ack.min(recheck.deadline()),
        }
    }

    /// Runs the timers of the delayed ACK and of a READ that is checked again. True: the ACK is due.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        if let Some(recheck) = &mut self.recheck {
            recheck.expire(now);
        }
        if self.delayed_ack > now {
            return false;
        }
        self.delayed_ack = Instant::NEVER;
        true
    }
}
