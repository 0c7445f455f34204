//! The free lists of a server whose clients allocate buffers themselves.

use remora_nic::PostError;
use remora_store::heap::{Class, Lists};
use remora_verbs::FreeList;

/// The free lists of the NIC.
pub struct Posted(pub Vec<FreeList>);

impl Lists for Posted {
    fn post_buffer(&mut self, class: &Class, address: u64) -> Result<(), PostError> {
        let list = self.0.iter_mut().find(|list| list.number() == class.list).ok_or(PostError::BadState)?;
        let index = list.index(address).ok_or(PostError::BadPayload)?;
        list.post(index).map_err(|_| PostError::QueueFull)
    }

    fn out(&mut self, class: &Class, first: u32, bits: &mut [u64]) {
        let list = self.0.iter().find(|list| list.number() == class.list);
        // If the list cannot be read, no buffer is reported as out, so none is posted twice.
        if list.is_none_or(|list| list.out(first, bits).is_err()) {
            bits.fill(0);
        }
    }
}
