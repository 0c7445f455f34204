//! READs behind pointers, put off until their pointers have come near.
//!
//! A table of a million pointers lies in no cache. A NIC that takes one READ after the other waits for each pointer; here
//! those that come together are asked for together, and followed when the last of them is there, or anything else comes.
//! Nobody sees the difference: responses leave later still, and nothing overtakes.

use remora_memory::{Access, Key, Mem};
use remora_transport::Instant;
use remora_transport::rc::prism::is_scratch;
use remora_wire::prism::Flags;
use remora_wire::{Opcode, bth, icrc, packet, reth};

use crate::congestion::MARKED;
use crate::ingress::Arrived;
use crate::nic::Nic;
use crate::queue_pair::QueuePair;

/// READs put off at most: about as many lines as a core waits for at a time.
const DEPTH: usize = 32;
/// Bytes of one from its BTH to its ICRC: nothing stands behind the RETH.
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

    /// Keeps a packet of which `waits` is true, while there is room.
    #[inline]
    pub fn put(&mut self, transport: &[u8]) {
        if let (Some(place), Ok(packet)) = (self.packets.get_mut(self.count), transport.try_into()) {
            *place = packet;
            self.count += 1;
        }
    }
}

/// Is it one of those that are put off, if its queue pair speaks PRISM?
#[inline(always)]
pub(crate) fn waits(packet: &packet::View<'_>, arrived: &Arrived<'_>) -> bool {
    packet.bth.resv7 & Flags::ADDR_INDIRECT.bits() != 0
        && packet.bth.opcode == Opcode::RC_RDMA_READ_REQUEST
        && arrived.transport.len() == LEN
        && arrived.ecn != MARKED
}

impl QueuePair {
    /// Asks for the pointer that a packet names to come near.
    #[inline]
    pub(crate) fn prefetch(&self, mem: Mem<'_>, packet: &packet::View<'_>) {
        if let Some(reth) = packet.reth().filter(|reth| !is_scratch(reth.va)) {
            let key = Key::new(reth.rkey);
            let span = mem.check_for(self.pd, self.owner, key, reth.va, POINTER, Access::REMOTE_READ);
            // What is wrong with it is said when it is executed.
            if let Ok(span) = span {
                span.prefetch();
            }
        }
    }
}

impl Nic {
    /// Executes what was put off.
    #[cold]
    #[inline(never)]
    pub(crate) fn catch_up(&mut self, now: Instant, mem: Mem<'_>) {
        let count = std::mem::take(&mut self.prefetched.count);
        for at in 0..count {
            let transport = self.prefetched.packets[at];
            let Ok(packet) = packet::View::new(&transport) else { continue };
            let Some(index) = self.index(packet.bth.dest_qp) else { continue };
            // One before it may have ended the connection.
            if let Some(qp) = self.qps[index as usize].as_mut().filter(|qp| qp.may_receive()) {
                qp.take_plain_outlined(now, mem, &packet, &mut self.shared);
            }
            self.touch(index);
        }
    }
}
