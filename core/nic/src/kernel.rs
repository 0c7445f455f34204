//! StRoM on this NIC (StRoM paper, §5): kernels, which take requests and bytes from the wire, read and write the memory of
//! whoever deployed them, and answer by WRITEs.
//!
//! Heads up: what a kernel is and which streams it has is here and in `streams.rs`; `table.rs` holds those that are deployed,
//! each with a number of `lane.rs`, which make a kernel's steps (`lane_ref.rs` finds one). A packet comes by `serve.rs`, an answer leaves by
//! `answer.rs`, and `submit.rs` is the requester's side; `placement.rs` has the other ways to a kernel. The other files are kernels. `docs/STROM.md` says what was decided
//! where the paper leaves it open.

mod aggregate;
mod answer;
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

pub use aggregate::{Aggregate, Sums};
pub(crate) use checked::Judged;
pub use consistency::{CRC_LEN, Consistency, Object, crc64};
pub use delayed_ack::DELAYED_ACK_NS;
pub use filter::{Filter, Predicate, Scan};
pub use get::{Get, Lookup, Slot};
pub use hyperloglog::{Ask, HyperLogLog};
pub use meter::{Metered, Steps};
pub use placement::Invocation;
pub use shipped::Shipped;
pub use shuffle::{Partition, Shuffle, histogram};
pub use streams::{DMA, Input, PACKET, Streams, What};
pub(crate) use table::Kernels;
pub use table::{KernelFacts, KernelInit, SPARE};

pub use remora_wire::strom::{Ending, HEAD_LEN, Status, TAG_MASK};
pub use traversal::{Shape, Traversal, Walk};

use checked::Unfit;
use table::Block;

/// What runs on the data path (the paper's Listing 1). It lives in a *lane*: it serves one queue pair at a time, and all
/// requests of that one in order.
///
/// A kernel owns all its memory from the start: a step allocates nothing, waits for nothing, and does about as much as
/// copying [`DMA`] bytes takes. Whatever takes longer takes several steps.
pub trait Kernel: Send {
    /// One step: takes what there is of input and of bytes read, and gives at most one command and one message.
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress;

    /// Forgets everything: whoever it worked for is gone, or gets an error instead.
    fn reset(&mut self);

    /// What it will read for a request with these parameters, address and bytes: first, or once it has `seen` that (64 bytes of it at
    /// most). Nothing depends on it; requests that come together and of which this is known wait for memory together.
    fn prefetch_hint(&self, params: &[u8], seen: Option<&[u8]>) -> Option<(u64, u32)> {
        let _ = (params, seen);
        None
    }

    /// What judges the bytes of READs before they leave, if it does that.
    fn checks(&mut self) -> Option<&mut dyn Check> {
        None
    }

    /// What takes the bytes of WRITEs that pass, if it wants nothing but to see them: then they cost it no step, and it sees them on their
    /// way to memory. Else they are input, once they are there.
    fn looks(&mut self) -> Option<&mut dyn Look> {
        None
    }
}

/// Judges the bytes of READs before they leave: what a kernel is that is sent by (the paper's send kernel). It keeps nothing of whom it
/// serves from one to the next, and needs nothing that a step keeps.
pub trait Check {
    /// Bytes of memory behind those that were asked for that it wants to see too, [`BEHIND`] at most. They do not travel.
    fn behind(&self) -> usize;

    /// What becomes of the bytes, which were read so many times `before`.
    fn check(&mut self, bytes: &[u8], behind: &[u8], before: u32) -> Verdict;
}

/// Bytes that a [`Check`] sees behind those that were asked for, at most.
pub const BEHIND: usize = 64;

/// Times that bytes are read together for one response, at most.
pub const READINGS: u32 = 64;
/// Nanoseconds until they are read so often again, and for how long that is done: then the READ ends as an error of the responder's.
pub const AGAIN_NS: u64 = 10_000;
/// See [`AGAIN_NS`].
pub const UNFIT_NS: u64 = 50_000_000;

/// What becomes of bytes that were judged.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They leave.
    Leave,
    /// They are read again: [`READINGS`] times at once, and later, for [`UNFIT_NS`].
    Again,
    /// They do not leave: the READ ends as an error of the responder's.
    Refuse,
}

/// Looks at bytes on their way.
pub trait Look {
    /// The next bytes of a packet, in pieces of [`LOOKED_AT`] but for the last.
    fn look(&mut self, bytes: &[u8]);
}

/// Bytes of a packet that are looked at together: they are near, and the next ones come meanwhile.
pub const LOOKED_AT: usize = 512;

/// What a kernel says at the end of a step.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It has more to do now.
    Again,
    /// It waits for input, or for the bytes of a command, and holds something that belongs to the queue pair it serves.
    Waits,
    /// It waits for input and holds nothing: its lane may serve another queue pair.
    Rests,
}

/// Steps that one packet, or one turn, gives a lane. The acknowledgement of a packet waits for so many at most.
pub const STEPS: u32 = 32;

/// Where answers go: address, key, and bytes there.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// First byte there.
    pub addr: u64,
    /// Its key.
    pub rkey: u32,
    /// Bytes there.
    pub room: u32,
}

impl Place {
    /// The bytes that parameters begin with.
    pub fn emit(&self) -> [u8; HEAD_LEN] {
        let mut bytes = [0; HEAD_LEN];
        remora_wire::reth::Repr { va: self.addr, rkey: self.rkey, dma_len: self.room }.emit(&mut bytes);
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

/// A packet for a kernel that came before its turn.
struct Early {
    part: Option<Part>,
    len: u16,
    bytes: Box<[u8]>,
}

/// What a queue pair has for a peer that agreed on StRoM.
pub(crate) struct Strom {
    /// Answers on their way, oldest first.
    sent: VecDeque<Sent>,
    /// A lane waits until something of this queue pair's ends.
    waited_for: bool,
    /// The peer has agreed; else kernels only look on.
    agreed: bool,
    /// When an acknowledgement leaves that was not asked for.
    delayed_ack: Instant,
    /// A turn ended with something to say to the peer.
    pub(crate) owed_ack: bool,
    /// Over IRN: what came before its turn.
    early: Box<[Early]>,
    /// The lane that served it last: place of its kernel, and number there.
    lane: (u32, u32),
    /// The kernel that sees what is written: its place and number.
    tap: Option<(u32, u32)>,
    /// The kernel that judges what is read, likewise.
    judge: Option<(u32, u32)>,
    /// Bytes of a READ are not fit to leave yet.
    unfit: Option<Unfit>,
    /// The kernel that the message belongs to whose packets come now, likewise; none has its op-code.
    serving: Option<(u32, u32)>,
}

impl Strom {
    /// For a queue pair of so many messages, and so many packets of `mtu` bytes that come before their turn.
    fn new(messages: u64, early: u32, mtu: u32) -> Strom {
        let empty = |_| Early { part: None, len: 0, bytes: vec![0; mtu as usize].into_boxed_slice() };
        Strom {
            sent: VecDeque::with_capacity(messages as usize),
            waited_for: false,
            agreed: false,
            delayed_ack: Instant::NEVER,
            owed_ack: false,
            early: (0..early).map(empty).collect(),
            lane: (u32::MAX, u32::MAX),
            tap: None,
            judge: None,
            unfit: None,
            serving: None,
        }
    }
}
