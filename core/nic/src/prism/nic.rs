//! Free lists, as the program makes them, and the execution of READs that waited for their pointers.

use remora_memory::Mem;
use remora_transport::Instant;
use remora_wire::packet;

use super::free_list::{FreeList, FreeListFacts, FreeListInit};
use crate::config::NicError;
use crate::nic::Nic;

impl Nic {
    /// Makes a free list; its number, which ALLOCATE names.
    ///
    /// # Errors
    /// `Full`; `TooSmall` for buffers of no bytes, no buffers or too many, or an end beyond the address
    /// space.
    pub fn create_free_list(&mut self, init: FreeListInit) -> Result<u64, NicError> {
        self.shared.free_lists.create(init)
    }

    /// Removes a free list: from now on an ALLOCATE that names it is a remote access error. Its buffers stay
    /// what they are.
    ///
    /// # Errors
    /// `Unknown`.
    pub fn destroy_free_list(&mut self, number: u64) -> Result<(), NicError> {
        self.shared.free_lists.destroy(number)
    }

    /// How many buffers of a free list are free, out and resting.
    ///
    /// # Errors
    /// `Unknown`.
    pub fn free_list_facts(&mut self, number: u64) -> Result<FreeListFacts, NicError> {
        self.shared.free_lists.settled(number).map(FreeList::facts)
    }

    /// Which buffers of a free list are neither free nor resting: bit 0 of the first word is buffer `first`.
    /// Bits beyond the last buffer are 0.
    ///
    /// # Errors
    /// `Unknown`.
    pub fn free_list_out(&mut self, number: u64, first: u32, bits: &mut [u64]) -> Result<(), NicError> {
        self.shared.free_lists.settled(number).map(|list| list.out(first, bits))
    }

    /// Executes the READs that were delayed.
    #[cold]
    #[inline(never)]
    pub(crate) fn catch_up(&mut self, now: Instant, mem: Mem<'_>) {
        for at in 0..self.prefetched.take() {
            let transport = self.prefetched.packet(at);
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
