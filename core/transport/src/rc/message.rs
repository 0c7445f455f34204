//! The messages that a requester keeps until the peer has answered them.

use super::{Seq, packets, prism};
use crate::{Atomic, Status};
use remora_wire::prism::Verdict;

/// The operation of a message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A SEND message.
    Send,
    /// SEND with immediate data.
    SendImm(u32),
    /// SEND that invalidates the given key at the peer.
    SendInv(u32),
    /// RDMA WRITE to remote memory.
    Write {
        /// Remote address of the first byte.
        va: u64,
        /// Remote key of the accessed region.
        rkey: u32,
    },
    /// RDMA WRITE with immediate data.
    WriteImm {
        /// Remote address of the first byte.
        va: u64,
        /// Remote key of the accessed region.
        rkey: u32,
        /// Immediate data of the message.
        imm: u32,
    },
    /// RDMA READ of remote memory.
    Read {
        /// Remote address of the first byte.
        va: u64,
        /// Remote key of the accessed region.
        rkey: u32,
    },
    /// A work request without packets (NOP, LOCAL_INV), which only keeps its place in the order of
    /// completions.
    Local,
    /// An atomic operation on 8 bytes.
    Atomic {
        /// Remote address of the 8 bytes.
        va: u64,
        /// Remote key of the accessed region.
        rkey: u32,
        /// The operation and its operands.
        atomic: Atomic,
    },
    /// A PRISM operation.
    Prism(prism::Extended),
    /// A request with parameters for a kernel of the peer's NIC, in one packet.
    Rpc {
        /// RPC op-code under which the kernel is deployed.
        opcode: u64,
        /// Number that the requester chose for the request.
        tag: u32,
    },
    /// A request with a byte stream for a kernel of the peer's NIC.
    RpcWrite {
        /// RPC op-code under which the kernel is deployed.
        opcode: u64,
        /// Number that the requester chose for the request.
        tag: u32,
    },
}

impl Kind {
    /// Returns true if the answer carries data instead of an ACK (READs, atomics and PRISM operations).
    #[inline]
    pub fn is_fetch(&self) -> bool {
        matches!(self, Kind::Read { .. } | Kind::Atomic { .. } | Kind::Prism(_))
    }

    /// Returns the number of request packets for `len` bytes.
    pub(super) fn requests(&self, len: u32, mtu: u32) -> u32 {
        match self {
            Kind::Prism(extended) => extended.requests(len, mtu),
            _ => self.packets(len, mtu),
        }
    }

    /// Returns the number of PSNs that the message uses with `len` bytes.
    #[inline]
    pub(super) fn packets(&self, len: u32, mtu: u32) -> u32 {
        match self {
            Kind::Local => 0,
            Kind::Prism(extended) => extended.packets(len, mtu),
            _ => packets(len, mtu),
        }
    }
}

/// A submitted message, with a context `D` of the NIC (location of the data, index of the WQE).
#[derive(Copy, Clone, Debug)]
pub struct Message<D> {
    /// Operation that is executed.
    pub kind: Kind,
    /// Length of the message's data, in bytes.
    pub len: u32,
    /// Fence: the message waits for all earlier READs and atomics.
    pub fence: bool,
    /// Sets the solicited-event bit in the last packet.
    pub solicited: bool,
    /// Context of the NIC, returned unchanged.
    pub context: D,
}

/// A finished message.
#[derive(Copy, Clone, Debug)]
pub struct Retired<D> {
    /// Context of the NIC.
    pub context: D,
    /// Length of the message's data, in bytes.
    pub len: u32,
    /// Operation that is executed.
    pub kind: Kind,
    /// Status of the completion.
    pub status: Status,
    /// Result of a PRISM operation that succeeded; `Done` for other operations.
    pub verdict: Verdict,
}

/// A message and the PSNs `first..end` of its packets.
#[derive(Copy, Clone, Debug)]
pub(super) struct Placed<D> {
    pub first: Seq,
    pub end: Seq,
    pub message: Message<D>,
}

impl<D> Placed<D> {
    /// Returns the first PSN that an answer to the message can carry.
    #[inline]
    pub(crate) fn answered_from(&self) -> Seq {
        match &self.message.kind {
            Kind::Prism(extended) if !extended.asks() => self.end - 1,
            _ => self.first,
        }
    }
}

/// The messages between submission and retirement, in order, in a ring of fixed capacity.
pub(super) struct Window<D> {
    ring: Box<[Option<Placed<D>>]>,
    head: u64,
    tail: u64,
}

impl<D: Copy> Window<D> {
    pub(crate) fn new(capacity: u32) -> Self {
        let capacity = capacity.max(1).next_power_of_two() as usize;
        Window { ring: vec![None; capacity].into_boxed_slice(), head: 0, tail: 0 }
    }

    #[inline]
    fn slot(&self, number: u64) -> usize {
        number as usize & (self.ring.len() - 1)
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.tail - self.head == self.ring.len() as u64
    }

    pub(crate) fn len(&self) -> usize {
        (self.tail - self.head) as usize
    }

    /// Returns the number of the oldest message and the number that the next message will get.
    #[inline]
    pub(crate) fn bounds(&self) -> (u64, u64) {
        (self.head, self.tail)
    }

    #[inline]
    pub(crate) fn get(&self, number: u64) -> Option<&Placed<D>> {
        if number < self.head || number >= self.tail { None } else { self.ring[self.slot(number)].as_ref() }
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut Placed<D>> {
        let slot = self.slot(number);
        if number < self.head || number >= self.tail { None } else { self.ring[slot].as_mut() }
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&Placed<D>> {
        self.get(self.head)
    }

    /// Appends a message. The caller has checked that the window is not full.
    #[inline]
    pub(crate) fn push(&mut self, placed: Placed<D>) {
        debug_assert!(!self.is_full());
        let slot = self.slot(self.tail);
        self.ring[slot] = Some(placed);
        self.tail += 1;
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Placed<D>> {
        if self.head == self.tail {
            return None;
        }
        let slot = self.slot(self.head);
        self.head += 1;
        self.ring[slot]
    }

    /// Returns the maximum number of messages.
    pub(crate) fn capacity(&self) -> usize {
        self.ring.len()
    }

    /// Asserts that the messages fit the ring. Also asserts that the oldest, the newest and message `some`
    /// use consecutive sequence numbers with the message behind each, up to `write_seq`.
    pub(crate) fn check(&self, some: u64, write_seq: Seq) {
        assert!(
            self.head <= self.tail && self.len() <= self.capacity(),
            "messages <= capacity of the window"
        );
        let newest = self.tail.wrapping_sub(1);
        for number in [self.head, some, newest] {
            let Some(placed) = self.get(number) else { continue };
            assert!(placed.first <= placed.end, "a message ends at or after its first packet");
            let next = self.get(number + 1).map_or(write_seq, |next| next.first);
            assert_eq!(placed.end, next, "a message starts where the previous one ends");
        }
    }

    /// Returns the number of the message that contains `seq`, searching from message `hint` in either
    /// direction.
    pub(crate) fn find(&self, seq: Seq, hint: u64) -> Option<u64> {
        let mut number = hint.clamp(self.head, self.tail.saturating_sub(1).max(self.head));
        while number > self.head && self.get(number)?.first > seq {
            number -= 1;
        }
        while self.get(number)?.end <= seq {
            number += 1;
        }
        (self.get(number)?.first <= seq).then_some(number)
    }
}
