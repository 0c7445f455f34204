//! READs behind pointers, delayed until their pointers are in the cache.
//!
//! No cache holds a table of a million pointers. A NIC that takes one READ after the other waits for each
//! pointer. Here the pointers of READs that arrive together are prefetched together; the READs are executed
//! when the batch is full or any other packet arrives. The order of execution does not change.

use remora_memory::{Access, Key, Mem};
use remora_transport::rc::prism::is_scratch;
use remora_wire::prism::Flags;
use remora_wire::{Opcode, bth, icrc, packet, reth};

use crate::arrived::Arrived;
use crate::congestion::MARKED;
use crate::queue_pair::QueuePair;

/// READs that may be delayed: about as many lines as a core waits for at a time.
const DEPTH: usize = 32;
/// Bytes of such a READ from its BTH to its ICRC: it has no payload.
const LEN: usize = bth::LEN + reth::LEN + icrc::LEN;
/// Bytes of a pointer and its bound.
const POINTER: usize = 16;

/// Packets that were admitted and are not executed yet, in the order in which they came.
#[derive(Debug)]
pub(crate) struct Prefetched {
    packets: [[u8; LEN]; DEPTH],
    count: usize,
}

impl Prefetched {
    pub fn new() -> Prefetched {
        Prefetched { packets: [[0; LEN]; DEPTH], count: 0 }
    }

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.count == DEPTH
    }

    /// Empties it; how many packets there were. They can still be read by `packet`.
    #[inline]
    pub fn take(&mut self) -> usize {
        std::mem::take(&mut self.count)
    }

    /// The packet at this position, from its BTH to its ICRC.
    #[inline]
    pub fn packet(&self, at: usize) -> [u8; LEN] {
        self.packets[at]
    }

    /// Keeps a packet for which `waits` is true. The caller has checked `is_full`.
    #[inline]
    pub fn put(&mut self, transport: &[u8]) {
        if let (Some(place), Ok(packet)) = (self.packets.get_mut(self.count), transport.try_into()) {
            *place = packet;
            self.count += 1;
        }
    }
}

/// Is it a READ that is delayed, if its queue pair has PRISM?
#[inline(always)]
pub(crate) fn waits(packet: &packet::View<'_>, arrived: &Arrived<'_>) -> bool {
    packet.bth.resv7 & Flags::ADDR_INDIRECT.bits() != 0
        && packet.bth.opcode == Opcode::RC_RDMA_READ_REQUEST
        && arrived.transport.len() == LEN
        && arrived.ecn != MARKED
}

/// Prefetches the pointer that a packet names.
#[inline]
pub(crate) fn prefetch_pointer(qp: &QueuePair, mem: Mem<'_>, packet: &packet::View<'_>) {
    if let Some(reth) = packet.reth().filter(|reth| !is_scratch(reth.va)) {
        let key = Key::new(reth.rkey);
        let span = mem.check_for(qp.pd, qp.owner, key, reth.va, POINTER, Access::REMOTE_READ);
        // An error is reported when the READ is executed.
        if let Ok(span) = span {
            span.prefetch();
        }
    }
}
