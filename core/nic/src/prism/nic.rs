//! Creation and destruction of free lists, and execution of delayed READs.

use remora_memory::Mem;
use remora_transport::Instant;
use remora_wire::packet;

use super::free_list::{FreeList, FreeListFacts, FreeListInit};
use crate::config::NicError;
use crate::nic::Nic;

impl Nic {
    /// Creates a free list and returns its number, which ALLOCATE names.
    ///
    /// # Errors
    /// `Full`: the configured maximum number of free lists exists. `TooSmall`: size or count of the buffers
    /// is 0 or too large, or the buffers exceed the address space.
    pub fn create_free_list(&mut self, init: FreeListInit) -> Result<u64, NicError> {
        self.shared.free_lists.create(init)
    }

    /// Destroys a free list. Later ALLOCATEs that name it fail with a remote access error. The buffers remain
    /// unchanged.
    ///
    /// # Errors
    /// `Unknown`: there is no such free list.
    pub fn destroy_free_list(&mut self, number: u64) -> Result<(), NicError> {
        self.shared.free_lists.destroy(number)
    }

    /// Returns the capacity of a free list and the number of free and resting buffers.
    ///
    /// # Errors
    /// `Unknown`: there is no such free list.
    pub fn free_list_facts(&mut self, number: u64) -> Result<FreeListFacts, NicError> {
        self.shared.free_lists.settled(number).map(FreeList::facts)
    }

    /// Sets in `bits` the buffers of a free list that are neither free nor resting. Bit 0 of the first word
    /// is buffer `first`; bits beyond the last buffer are 0.
    ///
    /// # Errors
    /// `Unknown`: there is no such free list.
    pub fn free_list_out(&mut self, number: u64, first: u32, bits: &mut [u64]) -> Result<(), NicError> {
        self.shared.free_lists.settled(number).map(|list| list.out(first, bits))
    }

    /// Executes the delayed READs.
    #[cold]
    #[inline(never)]
    pub(crate) fn catch_up(&mut self, now: Instant, mem: Mem<'_>) {
        for position in 0..self.prefetched.take() {
            let transport = self.prefetched.packet(position);
            let Ok(packet) = packet::View::new(&transport) else { continue };
            let Some(index) = self.index(packet.bth.dest_qp()) else { continue };
            // An earlier packet may have ended the connection.
            if let Some(qp) = self.qps[index as usize].as_mut().filter(|qp| qp.may_receive()) {
                qp.take_plain_outlined(now, mem, &packet, &mut self.shared);
            }
            self.touch(index);
        }
    }
}
