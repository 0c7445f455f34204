//! StRoM: kernels on the NIC (StRoM paper, §5). A kernel processes RPC requests and data from the network,
//! reads and writes the memory of the program that deployed it, and answers with WRITEs.
//!
//! A queue pair holds the state of this file, and the NIC the deployed kernels (`table.rs`). Each kernel has
//! lanes (`lane.rs`), which execute its steps; `lane_ref.rs` finds a lane. `interface.rs` defines the trait
//! of a kernel, and `streams.rs` its streams. None of these files knows a queue pair.
//!
//! The turn and the receipt of packets call the others: a request is received in `serve.rs`, an answer is
//! sent by `answer.rs`, `submit.rs` is the requester's side, and `placement.rs` and `checked.rs` run kernels
//! on WRITEs and READs rather than RPCs, the latter with the check of `recheck.rs`. The remaining files are
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
mod interface;
mod lane;
mod lane_ref;
mod nic;
mod number;
mod place;
mod placement;
mod recheck;
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
pub(crate) use checked::{check_reply, checker, execute_checked, waits_for_bytes};
pub use consistency::{CRC_LEN, Consistency, Object, crc64};
pub use delayed_ack::DELAYED_ACK_NS;
pub(crate) use delayed_ack::{clear_delayed_ack, delay_plain_ack, execute_strom, maybe_delay_ack};
pub use filter::{Filter, Predicate, Scan};
pub use get::{Get, Lookup, Slot};
pub use hyperloglog::{Ask, HyperLogLog};
pub use interface::{
    AGAIN_NS, BEHIND, Check, Kernel, LOOKED_AT, Look, Progress, READINGS, STEPS, UNFIT_NS, Verdict,
};
pub use place::Place;
pub use placement::Invocation;
pub(crate) use placement::{execute_tapped, is_tapped, place_tapped};
pub(crate) use recheck::CheckResult;
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
use recheck::Recheck;

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
    pub(crate) fn new(messages: u64, early: u32, mtu: u32) -> Strom {
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
