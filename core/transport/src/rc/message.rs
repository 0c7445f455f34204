//! A message on its way: what the requester keeps until the peer has answered.

use super::{Seq, packets, prism};
use crate::{Atomic, Status};
use remora_wire::prism::Verdict;

/// What a message does at the peer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SEND.
    Send,
    /// SEND with immediate data.
    SendImm(u32),
    /// SEND that invalidates a key there.
    SendInv(u32),
    /// RDMA WRITE.
    Write {
        /// First byte there.
        va: u64,
        /// Its key.
        rkey: u32,
    },
    /// RDMA WRITE with immediate data.
    WriteImm {
        /// First byte there.
        va: u64,
        /// Its key.
        rkey: u32,
        /// Immediate data.
        imm: u32,
    },
    /// RDMA READ.
    Read {
        /// First byte there.
        va: u64,
        /// Its key.
        rkey: u32,
    },
    /// Work that sends nothing (NOP, LOCAL_INV): it only keeps its place in the order of completions.
    Local,
    /// An atomic on 8 bytes.
    Atomic {
        /// Target there.
        va: u64,
        /// Its key.
        rkey: u32,
        /// Which.
        atomic: Atomic,
    },
    /// An operation of PRISM.
    Prism(prism::Extended),
    /// Parameters for a kernel of the peer's NIC: one packet.
    Rpc {
        /// Which kernel.
        opcode: u64,
        /// Our name for the request.
        tag: u32,
    },
    /// Bytes for a kernel of the peer's NIC.
    RpcWrite {
        /// Which kernel.
        opcode: u64,
        /// Our name for the request.
        tag: u32,
    },
}

impl Kind {
    /// Is it answered by data and not by an ACK, as READs, atomics and operations of PRISM are?
    #[inline]
    pub fn is_fetch(&self) -> bool {
        matches!(self, Kind::Read { .. } | Kind::Atomic { .. } | Kind::Prism(_))
    }

    /// Packets of its request alone.
    pub(super) fn requests(&self, len: u32, mtu: u32) -> u32 {
        match self {
            Kind::Prism(extended) => extended.requests(len, mtu),
            _ => self.packets(len, mtu),
        }
    }

    /// Sequence numbers that it takes with `len` bytes.
    #[inline]
    pub(super) fn packets(&self, len: u32, mtu: u32) -> u32 {
        match self {
            Kind::Local => 0,
            Kind::Prism(extended) => extended.packets(len, mtu),
            _ => packets(len, mtu),
        }
    }
}

/// A message as submitted, with a context `D` of the NIC (where its bytes are, which WQE it came from).
#[derive(Copy, Clone, Debug)]
pub struct Message<D> {
    /// What it does.
    pub kind: Kind,
    /// Length of the message's data, in bytes.
    pub len: u32,
    /// Waits for all earlier READs and atomics.
    pub fence: bool,
    /// Its last packet carries the solicited-event bit.
    pub solicited: bool,
    /// The NIC's context.
    pub context: D,
}

/// A message that ended.
#[derive(Copy, Clone, Debug)]
pub struct Retired<D> {
    /// Its context.
    pub context: D,
    /// Its length.
    pub len: u32,
    /// What it was.
    pub kind: Kind,
    /// How it ended.
    pub status: Status,
    /// How an operation of PRISM ended, on success.
    pub verdict: Verdict,
}

/// A message with its place in the sequence.
#[derive(Copy, Clone, Debug)]
pub(super) struct Placed<D> {
    pub first: Seq,
    pub end: Seq,
    pub message: Message<D>,
}

impl<D> Placed<D> {
    /// First sequence number of its answer.
    #[inline]
    pub fn answered_from(&self) -> Seq {
        match &self.message.kind {
            Kind::Prism(extended) if !extended.asks() => self.end - 1,
            _ => self.first,
        }
    }
}

/// The messages between submission and retirement, in order: a ring of fixed capacity.
pub(super) struct Window<D> {
    ring: Box<[Option<Placed<D>>]>,
    head: u64,
    tail: u64,
}

impl<D: Copy> Window<D> {
    pub fn new(capacity: u32) -> Self {
        let capacity = capacity.max(1).next_power_of_two() as usize;
        Window { ring: vec![None; capacity].into_boxed_slice(), head: 0, tail: 0 }
    }

    #[inline]
    fn slot(&self, number: u64) -> usize {
        number as usize & (self.ring.len() - 1)
    }

    #[inline]
    pub fn is_full(&self) -> bool {
        self.tail - self.head == self.ring.len() as u64
    }

    pub fn len(&self) -> usize {
        (self.tail - self.head) as usize
    }

    /// Number of the oldest message, and the number that the next one will get.
    #[inline]
    pub fn bounds(&self) -> (u64, u64) {
        (self.head, self.tail)
    }

    #[inline]
    pub fn get(&self, number: u64) -> Option<&Placed<D>> {
        if number < self.head || number >= self.tail { None } else { self.ring[self.slot(number)].as_ref() }
    }

    pub fn get_mut(&mut self, number: u64) -> Option<&mut Placed<D>> {
        let slot = self.slot(number);
        if number < self.head || number >= self.tail { None } else { self.ring[slot].as_mut() }
    }

    #[inline]
    pub fn front(&self) -> Option<&Placed<D>> {
        self.get(self.head)
    }

    /// The caller has seen that the window is not full.
    #[inline]
    pub fn push(&mut self, placed: Placed<D>) {
        debug_assert!(!self.is_full());
        let slot = self.slot(self.tail);
        self.ring[slot] = Some(placed);
        self.tail += 1;
    }

    #[inline]
    pub fn pop(&mut self) -> Option<Placed<D>> {
        if self.head == self.tail {
            return None;
        }
        let slot = self.slot(self.head);
        self.head += 1;
        self.ring[slot]
    }

    /// Messages that it holds at most.
    pub fn capacity(&self) -> usize {
        self.ring.len()
    }

    /// Bytes that it takes besides itself.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.ring)
    }

    /// Asserts that its messages fit the ring, and that the sequence numbers of the oldest, of the newest and
    /// of `some` message adjoin those of their neighbours, up to `write_seq`.
    pub fn check(&self, some: u64, write_seq: Seq) {
        assert!(self.head <= self.tail && self.len() <= self.capacity(), "messages <= slots of the window");
        let newest = self.tail.wrapping_sub(1);
        for number in [self.head, some, newest] {
            let Some(placed) = self.get(number) else { continue };
            assert!(placed.first <= placed.end, "a message ends behind its first packet");
            let next = self.get(number + 1).map_or(write_seq, |next| next.first);
            assert_eq!(placed.end, next, "a message begins where the one before it ends");
        }
    }

    /// Number of the message that holds `seq`, looking from `hint` backwards or forwards.
    pub fn find(&self, seq: Seq, hint: u64) -> Option<u64> {
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
