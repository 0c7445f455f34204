//! The memory of frames: mapped once, divided into chunks of equal length, shared with the kernel.

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::ptr::{self, NonNull};

/// Number of bytes that the kernel keeps free before each frame that it writes (`XDP_PACKET_HEADROOM`).
pub(super) const HEADROOM: usize = 256;
/// Chunk lengths that every kernel supports. Longer ones need huge pages.
const CHUNKS: [usize; 2] = [2048, 4096];

/// Returns the length of the shortest chunk that holds frames of `frame` bytes, Ethernet header included,
/// or else the longest length.
pub(super) fn chunk_for(frame: usize) -> usize {
    CHUNKS.into_iter().find(|chunk| chunk - HEADROOM >= frame).unwrap_or(CHUNKS[1])
}

/// The mapped chunks. The rings contain addresses: offsets in bytes from the start of the first chunk.
#[derive(Debug)]
pub(super) struct Umem {
    start: NonNull<u8>,
    count: usize,
    chunk: usize,
}

// SAFETY: the mapping belongs to this value alone, on every thread.
unsafe impl Send for Umem {}

impl Umem {
    /// Maps `count` chunks of `chunk` bytes (a power of two), with their pages.
    ///
    /// # Errors
    /// The errno of mmap(2).
    pub(super) fn map(count: usize, chunk: usize) -> Result<Umem, Errno> {
        debug_assert!(chunk.is_power_of_two());
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: a fresh anonymous mapping disturbs nothing that exists.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                count * chunk,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Umem { start, count, chunk })
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the size of all chunks in bytes.
    pub(super) fn len(&self) -> usize {
        self.count * self.chunk
    }

    pub(super) fn chunk(&self) -> usize {
        self.chunk
    }

    /// Returns the first address of chunk `number`.
    pub(super) fn address(&self, number: usize) -> u64 {
        (number * self.chunk) as u64
    }

    /// Returns the first address of the chunk that contains `address`.
    #[inline(always)]
    pub(super) fn chunk_of(&self, address: u64) -> u64 {
        address & !(self.chunk as u64 - 1)
    }

    /// Returns whether `len` bytes from `address` lie within one chunk.
    #[inline(always)]
    fn holds(&self, address: u64, len: usize) -> bool {
        let within = (address & (self.chunk as u64 - 1)) as usize;
        address < self.len() as u64 && len <= self.chunk - within
    }

    /// Returns a frame that the kernel has written; `None` if it does not lie in one chunk.
    #[inline(always)]
    pub(super) fn frame(&self, address: u64, len: usize) -> Option<&[u8]> {
        if !self.holds(address, len) {
            return None;
        }
        // SAFETY: within the mapping, which lives as long as `self`. The chunk came out of the receive ring
        // and goes into the fill ring only after the borrow, so the kernel does not write to it meanwhile.
        Some(unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(address as usize), len) })
    }

    /// Returns a buffer for a frame to send, of `len` bytes at `address`; `None` if it does not fit there.
    #[inline(always)]
    pub(super) fn frame_mut(&mut self, address: u64, len: usize) -> Option<&mut [u8]> {
        if !self.holds(address, len) {
            return None;
        }
        // SAFETY: within the mapping, borrowed from `self` exclusively. The chunk is one that frames are
        // sent from and is in no ring, so the kernel does not access it.
        Some(unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(address as usize), len) })
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and no borrow of it is left. The kernel has its own
        // references to the pages.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_an_ethernet_fit_small_chunks_and_jumbo_ones_the_largest() {
        assert_eq!(chunk_for(1514), 2048);
        assert_eq!((chunk_for(1792), chunk_for(1793)), (2048, 4096));
        assert_eq!((chunk_for(3840), chunk_for(9014)), (4096, 4096));
    }

    #[test]
    fn addresses_outside_a_chunk_are_refused() {
        let mut umem = Umem::map(4, 2048).unwrap();
        umem.frame_mut(2048, 3).unwrap().copy_from_slice(&[1, 2, 3]);
        assert_eq!(umem.frame(2048, 3), Some(&[1, 2, 3][..]));
        assert_eq!(umem.frame(2049, 2), Some(&[2, 3][..]));
        assert!(umem.frame(3 * 2048 + 256, 2048 - 256).is_some());
        assert!(umem.frame(3 * 2048 + 256, 2048 - 255).is_none(), "into the next chunk");
        assert!(umem.frame(4 * 2048, 1).is_none() && umem.frame(u64::MAX, 1).is_none());
        assert!(umem.frame(4 * 2048, 0).is_none() && umem.frame_mut(0, 2049).is_none());
        assert_eq!((umem.chunk_of(2047), umem.chunk_of(2048 + 256), umem.address(3)), (0, 2048, 6144));
    }
}
