//! Memory that program and NIC share.

use remora_memory::Bytes;

/// Memory of a program that the NIC uses. Its pages are freed when this value is dropped, although the program may
/// keep the descriptor: from then on the kernel charges pages to the program that touches them.
pub(super) struct LentMemory(pub Bytes);

impl Drop for LentMemory {
    fn drop(&mut self) {
        use rustix::fs::{FallocateFlags, fallocate};
        let Some(file) = self.0.fd() else { return };
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // On an error the pages stay for as long as the program keeps the descriptor.
        let _ = fallocate(file, hole, 0, self.0.len() as u64);
    }
}
