//! StRoM: kernels on the NIC (StRoM paper, §5). A kernel processes RPC requests and data from the network,
//! reads and writes the memory of the program that deployed it, and answers with WRITEs.
//!
//! This file defines the trait of a kernel, and `streams.rs` its streams. `table.rs` holds the deployed
//! kernels. Each kernel has lanes (`lane.rs`), which execute its steps; `lane_ref.rs` finds a lane. A request
//! is received in `serve.rs`, an answer is sent by `answer.rs`, and `submit.rs` is the requester's side.
//! `placement.rs` and `checked.rs` run kernels on WRITEs and READs rather than RPCs. The other files are
//! kernels. `docs/reference/strom.md` lists the decisions that the paper leaves open.

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

/// A kernel: user code on the data path (the paper's Listing 1). A kernel runs in a *lane*, which serves one
/// queue pair at a time and processes that queue pair's requests in order.
///
/// A kernel allocates all its memory when it is created. A step must not allocate or block, and should take
/// about as long as copying [`DMA`] bytes; longer work is divided into several steps.
pub trait Kernel: Send {
    /// Executes one step: consumes the available input and read data, and issues at most one command and one
    /// message.
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress;

    /// Resets the kernel to its initial state, because its queue pair was destroyed or its request ended with
    /// an error.
    fn reset(&mut self);

    /// Returns the address and length of the memory that the kernel will read for a request with these
    /// parameters: first (`seen` is `None`), or after it has read the bytes `seen` (64 at most). The NIC
    /// prefetches this memory, so that the cache misses of concurrent requests overlap.
    fn prefetch_hint(&self, params: &[u8], seen: Option<&[u8]>) -> Option<(u64, u32)> {
        let _ = (params, seen);
        None
    }

    /// Returns the kernel's check of READ data; `None` if the kernel does not check READs.
    fn checks(&mut self) -> Option<&mut dyn Check> {
        None
    }

    /// Returns the kernel's observer of WRITE data; `None` if the kernel has none. An observer sees the data
    /// on its way to memory, without a step. Otherwise WRITEs are input of the kernel after they have been
    /// placed.
    fn looks(&mut self) -> Option<&mut dyn Look> {
        None
    }
}

/// A check of READ data before the response is sent (the paper's send kernel). A check keeps no state between
/// READs.
pub trait Check {
    /// Returns the number of bytes after the READ's range that the check also needs, [`BEHIND`] at most.
    /// These bytes are not sent.
    fn behind(&self) -> usize;

    /// Returns the verdict on the data. `before` is the number of earlier readings for the same response.
    fn check(&mut self, bytes: &[u8], behind: &[u8], before: u32) -> Verdict;
}

/// Maximum number of bytes after a READ's range that a [`Check`] receives.
pub const BEHIND: usize = 64;

/// Maximum number of successive readings for one response.
pub const READINGS: u32 = 64;
/// Delay in nanoseconds before the data is read again, after [`READINGS`] successive readings.
pub const AGAIN_NS: u64 = 10_000;
/// Time in nanoseconds after which a READ whose data still fails the check ends with a responder error.
pub const UNFIT_NS: u64 = 50_000_000;

/// The verdict of a [`Check`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The data is sent.
    Leave,
    /// The data is read again: up to [`READINGS`] times immediately, then with delays for [`UNFIT_NS`].
    Again,
    /// The READ ends with a responder error.
    Refuse,
}

/// An observer of WRITE data.
pub trait Look {
    /// Observes the next bytes of a packet, in pieces of [`LOOKED_AT`] bytes except for the last.
    fn look(&mut self, bytes: &[u8]);
}

/// Size in bytes of the pieces that an observer receives. A piece is in the cache, and the next one is
/// prefetched meanwhile.
pub const LOOKED_AT: usize = 512;

/// The result of a kernel's step.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The kernel has more work and is called again.
    Again,
    /// The kernel waits for input or for read data, and holds state of its queue pair.
    Waits,
    /// The kernel waits for input and holds no state, so its lane may serve another queue pair.
    Rests,
}

/// Maximum number of steps for one packet or in one turn. The acknowledgement of a packet is delayed by at
/// most that many steps.
pub const STEPS: u32 = 32;

/// The destination of answers in the requester's memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The address of the first byte.
    pub addr: u64,
    /// Remote key of the accessed region.
    pub rkey: u32,
    /// Size in bytes.
    pub len: u32,
}

impl Place {
    /// Returns the encoding with which the parameters of a request begin.
    pub fn emit(&self) -> [u8; HEAD_LEN] {
        let mut bytes = [0; HEAD_LEN];
        remora_wire::reth::Repr { va: self.addr, rkey: self.rkey, dma_len: self.len }.emit(&mut bytes);
        bytes
    }
}

/// An answer, or a part of one, in flight.
#[derive(Copy, Clone, Debug)]
struct Sent {
    /// Number of the message.
    number: u64,
    block: Block,
}

/// A packet for a kernel that arrived ahead of the expected PSN.
struct Early {
    part: Option<Part>,
    len: u16,
    bytes: Box<[u8]>,
}

/// StRoM state of a queue pair.
pub(crate) struct Strom {
    /// Answers in flight, oldest first.
    sent: VecDeque<Sent>,
    /// A lane waits for the completion of a message of this queue pair.
    waited_for: bool,
    /// The peer agreed on StRoM. If false, kernels only observe WRITEs and check READs.
    agreed: bool,
    /// Time at which the delayed ACK is sent.
    delayed_ack: Instant,
    /// The last turn ended with an unsent response.
    pub(crate) ack_was_pending: bool,
    /// IRN only: packets that arrived ahead of the expected PSN.
    early: Box<[Early]>,
    /// The lane that served the queue pair last.
    lane: LaneId,
    /// The kernel that observes WRITEs.
    tap: Option<KernelId>,
    /// The kernel that checks READs.
    checker: Option<KernelId>,
    /// The READ whose data failed the check and will be read again.
    recheck: Option<Recheck>,
    /// The kernel that serves the current message; `None` if no kernel has its opcode.
    serving: Option<KernelId>,
}

impl Strom {
    /// Creates the state for a queue pair with up to `messages` messages in flight, and buffers for `early`
    /// packets of `mtu` bytes that arrive ahead of the expected PSN.
    fn new(messages: u64, early: u32, mtu: u32) -> Strom {
        let empty = |_| Early { part: None, len: 0, bytes: vec![0; mtu as usize].into_boxed_slice() };
        Strom {
            sent: VecDeque::with_capacity(messages as usize),
            waited_for: false,
            agreed: false,
            delayed_ack: Instant::NEVER,
            ack_was_pending: false,
            early: (0..early).map(empty).collect(),
            lane: LaneId::NONE,
            tap: None,
            checker: None,
            recheck: None,
            serving: None,
        }
    }

    /// Frees the blocks of answers whose messages, those before number `oldest`, have completed. A lane that
    /// waited for a message can continue.
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

    /// Ends the connection: frees its lanes and the blocks of its answers.
    pub(crate) fn end(&mut self, kernels: &mut Kernels, qp: Qpn) {
        while let Some(sent) = self.sent.pop_front() {
            kernels.give_back(sent.block);
        }
        kernels.forget(qp);
    }

    /// Asserts that the answers in flight are in message order.
    pub(crate) fn check(&self) {
        let ends = self.sent.front().zip(self.sent.back());
        assert!(
            ends.is_none_or(|(first, last)| first.number <= last.number),
            "answers on their way are in the order of their messages: {ends:?}"
        );
    }

    /// Returns the time at which `expire` is due.
    #[inline(always)]
    pub(crate) fn deadline(&self) -> Instant {
        match &self.recheck {
            None => self.delayed_ack,
            Some(recheck) => self.delayed_ack.min(recheck.deadline()),
        }
    }

    /// Runs the timers of the delayed ACK and of the repeated check of a READ. Returns true if the delayed
    /// ACK is due.
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
