//! Creation of free lists, the search for allocated buffers, and execution of delayed READs.

use remora_memory::Mem;
use remora_transport::Instant;
use remora_wire::packet;

use super::free_list::{FreeListInit, MAX_WORDS};
use crate::config::NicError;
use crate::nic::Nic;

impl Nic {
    /// Creates a free list and returns its number.
    pub(crate) fn create_free_list(&mut self, init: &FreeListInit) -> Result<u64, NicError> {
        let ring = self.parts.ring(init.ring)?;
        self.shared.objects_mut().free_lists.create(*init, ring)
    }

    /// Returns the bits of the buffers of a free list that are neither free nor resting.
    pub(crate) fn find_buffers(&mut self, list: u64, first: u32, words: u32) -> Result<Vec<u64>, NicError> {
        if words > MAX_WORDS {
            return Err(NicError::TooLarge);
        }
        let list = self.shared.objects_mut().free_lists.settled(list)?;
        let mut bits = vec![0; words as usize];
        list.out(first, &mut bits);
        Ok(bits)
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
                qp.take_outlined(now, mem, &packet, &mut self.shared);
            }
            self.touch(index);
        }
    }
}
