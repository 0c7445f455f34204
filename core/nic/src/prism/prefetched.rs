//! Indirect READs that are delayed until their pointers are in the cache.
//!
//! A table of a million pointers fits no cache. If READs were executed one by one, each would wait for a
//! cache miss. Therefore the pointers of READs that arrive together are prefetched together, and the READs
//! are executed when the batch is full, at the next turn, or when another packet arrives that is not for a
//! plain queue pair. The order of execution on a queue pair does not change.

use remora_memory::{Access, Key, Mem};
use remora_transport::rc::prism::is_scratch;
use remora_wire::prism::Flags;
use remora_wire::{Opcode, bth, icrc, packet, reth};

use crate::arrived::Arrived;
use crate::congestion::MARKED;
use crate::queue_pair::QueuePair;

/// Maximum number of delayed READs: about the number of cache misses that a core can have outstanding.
const DEPTH: usize = 32;
/// Size in bytes of an indirect READ from BTH to ICRC; it has no payload.
const LEN: usize = bth::LEN + reth::LEN + icrc::LEN;
/// Size in bytes of a pointer and its bound.
const POINTER: usize = 16;

/// Packets that were admitted but not yet executed, in order of arrival.
#[derive(Debug)]
pub(crate) struct Prefetched {
    packets: [[u8; LEN]; DEPTH],
    count: usize,
}

impl Prefetched {
    pub(crate) fn new() -> Prefetched {
        Prefetched { packets: [[0; LEN]; DEPTH], count: 0 }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.count == DEPTH
    }

    /// Empties the batch and returns the number of packets, which can still be read by `packet`.
    #[inline]
    pub(crate) fn take(&mut self) -> usize {
        std::mem::take(&mut self.count)
    }

    /// Returns the packet at this position, from BTH to ICRC.
    #[inline]
    pub(crate) fn packet(&self, index: usize) -> [u8; LEN] {
        self.packets[index]
    }

    /// Stores a packet for which `waits` returned true. The caller has checked `is_full`.
    #[inline]
    pub(crate) fn put(&mut self, transport: &[u8]) {
        if let (Some(place), Ok(packet)) = (self.packets.get_mut(self.count), transport.try_into()) {
            *place = packet;
            self.count += 1;
        }
    }
}

/// Returns true for a READ that is delayed if its queue pair uses PRISM.
#[inline(always)]
pub(crate) fn waits(packet: &packet::View<'_>, arrived: &Arrived<'_>) -> bool {
    packet.bth.resv7() & Flags::ADDR_INDIRECT.bits() != 0
        && packet.bth.opcode() == Opcode::RC_RDMA_READ_REQUEST
        && arrived.transport.len() == LEN
        && arrived.ecn != MARKED
}

/// Prefetches the pointer that a packet refers to.
#[inline]
pub(crate) fn prefetch_pointer(qp: &QueuePair, mem: Mem<'_>, packet: &packet::View<'_>) {
    if let Some(reth) = packet.reth().filter(|reth| !is_scratch(reth.va)) {
        let key = Key::new(reth.rkey);
        let span = mem.check_for(qp.id().pd, qp.id().owner, key, reth.va, POINTER, Access::REMOTE_READ);
        // Errors are reported when the READ is executed.
        if let Ok(span) = span {
            span.prefetch();
        }
    }
}
