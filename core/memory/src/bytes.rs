//! Blocks of memory that the program and the NIC share.

use crate::block::Block;
use crate::on_nic::Extent;
use crate::{AccessError, Error, copy};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A block of memory, zeroed when new. Clones share the block; dropping the last clone releases it. A
/// region registered over the block holds a clone, so memory under a live region cannot be released.
///
/// The bytes may change at any moment (by the NIC or by another process). Reading and writing is safe from
/// any thread; a read of bytes that are being changed returns some mix of old and new.
#[derive(Clone, Debug)]
pub struct Bytes {
    // A copy of the block's own pointer: queue rings are read through it, and one load less is measurable
    // there.
    start: *mut u8,
    len: usize,
    #[allow(dead_code, reason = "held for its Drop; only Linux asks it anything")]
    block: Arc<Block>,
}

// SAFETY: the pointer repeats the block's, which is Send and Sync.
unsafe impl Send for Bytes {}
// SAFETY: as above.
unsafe impl Sync for Bytes {}

impl Bytes {
    pub(crate) fn from_block(block: Block) -> Bytes {
        Bytes { start: block.start.as_ptr(), len: block.len, block: Arc::new(block) }
    }

    /// Returns a piece of on-NIC memory; `None` if the extent does not lie within `whole`.
    pub(crate) fn on_nic(whole: &Bytes, extent: Extent) -> Option<Bytes> {
        let start = NonNull::new(whole.at(extent.offset(), extent.len()).ok()?)?;
        Some(Bytes::from_block(Block::on_nic(start, Arc::clone(&whole.block), extent)))
    }

    /// Allocates `len` bytes of this process. The block is at least 64-byte aligned, page-aligned from 4
    /// KiB on, and in populated huge pages (where the system has them) from 2 MiB on.
    ///
    /// # Errors
    /// `Invalid` for `len` 0; `Full` or `Os` if there is no memory.
    pub fn heap(len: usize) -> Result<Bytes, Error> {
        Block::heap(len).map(Bytes::from_block)
    }

    /// Returns `len` zeroed bytes of this process whose pages take memory once they are written, for blocks
    /// of which little is used.
    ///
    /// # Errors
    /// `Invalid` for `len` 0; `Full` or `Os` if there are no addresses.
    pub fn zeros(len: usize) -> Result<Bytes, Error> {
        Block::zeros(len).map(Bytes::from_block)
    }

    /// Allocates memory that other processes can map by [`fd`](Bytes::fd): a memfd, sealed against resizing
    /// and populated.
    ///
    /// # Errors
    /// `Invalid` for `len` 0 or a name with a NUL; `Os` if the system refuses. Always `Os` with ENOSYS on
    /// systems other than Linux.
    pub fn memfd(name: &str, len: usize) -> Result<Bytes, Error> {
        #[cfg(all(target_os = "linux", not(miri)))]
        return crate::mapping::memfd(name, len).map(Block::mapped).map(Bytes::from_block);
        #[cfg(not(all(target_os = "linux", not(miri))))]
        {
            let _ = (name, len);
            Err(Error::Os(38))
        }
    }

    /// Maps the whole memfd of another process.
    ///
    /// # Errors
    /// `Invalid` if the memfd is empty or not sealed against shrinking (its owner could kill this process
    /// by truncating it); `Os` if the system refuses.
    #[cfg(all(target_os = "linux", not(miri)))]
    pub fn from_memfd(fd: std::os::fd::OwnedFd) -> Result<Bytes, Error> {
        crate::mapping::from_memfd(fd, None).map(Block::mapped).map(Bytes::from_block)
    }

    /// Like [`from_memfd`](Bytes::from_memfd), if the memory has exactly `len` bytes: another process may
    /// make it grow at any time, and all its pages are allocated here.
    ///
    /// # Errors
    /// `Invalid` also if the memory has another length.
    #[cfg(all(target_os = "linux", not(miri)))]
    pub fn from_memfd_of(fd: std::os::fd::OwnedFd, len: usize) -> Result<Bytes, Error> {
        crate::mapping::from_memfd(fd, Some(len)).map(Block::mapped).map(Bytes::from_block)
    }

    /// Returns the descriptor; `None` unless the block is a memfd.
    #[cfg(all(target_os = "linux", not(miri)))]
    pub fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.block.fd()
    }

    /// Returns the number of bytes in the block; never 0.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a block is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the virtual address of the first byte in this process.
    #[inline]
    pub fn address(&self) -> u64 {
        self.start as u64
    }

    /// Returns a pointer to the first byte, for code that accesses the block by other means. The NIC or
    /// another process may write the bytes at any time.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.start
    }

    /// Copies `out.len()` bytes, beginning at `offset`, to `out`.
    ///
    /// # Errors
    /// `OutOfBounds` if the range leaves the block; nothing is copied then. `PageFault` if a page is
    /// absent; some bytes may be copied then.
    #[inline]
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), AccessError> {
        let from = self.at(offset, out.len())?;
        // SAFETY: within the block; `out` is the caller's own.
        let fine = unsafe { copy::fetch(out.as_mut_ptr(), from, out.len()) };
        if fine { Ok(()) } else { Err(AccessError::PageFault) }
    }

    /// Copies `data` to `offset`. The last byte becomes visible last.
    ///
    /// # Errors
    /// `OutOfBounds` if the range leaves the block; nothing is copied then. `PageFault` if a page is
    /// absent; some bytes may be copied then.
    #[inline]
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<(), AccessError> {
        let to = self.at(offset, data.len())?;
        // SAFETY: within the block; nobody writes `data` while it is borrowed.
        let fine = unsafe { copy::place(to, data.as_ptr(), data.len()) };
        if fine { Ok(()) } else { Err(AccessError::PageFault) }
    }

    /// Returns the aligned 64-bit word at `offset`, in the machine's byte order. Rings keep their producer
    /// and consumer indices in such words (load with Acquire, store with Release). `None` outside the block
    /// or if `offset` is not a multiple of 8.
    #[inline]
    pub fn word(&self, offset: usize) -> Option<&AtomicU64> {
        if !offset.is_multiple_of(8) {
            return None;
        }
        let word = self.at(offset, 8).ok()?;
        // SAFETY: within the block, which is 64-byte aligned and outlives the reference. All other accesses
        // to the word are atomics or instructions that the compiler does not see.
        Some(unsafe { AtomicU64::from_ptr(word.cast()) })
    }

    /// Copies the 64 bytes at `offset` (a WQE or CQE) to `out`, word by word. The fields were just written
    /// as words, and are read as words next: a CPU forwards a store only to a load of the same width.
    ///
    /// # Errors
    /// `OutOfBounds` if the range leaves the block; nothing is copied then. `PageFault` is possible only if
    /// `offset` is not a multiple of 8.
    #[inline]
    pub fn copy64(&self, offset: usize, out: &mut [u8; 64]) -> Result<(), AccessError> {
        let Some(words) = self.words(offset) else { return self.read(offset, out) };
        for (bytes, word) in out.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        Ok(())
    }

    /// Copies 64 bytes (a WQE or CQE) to `offset`, word by word like [`copy64`](Bytes::copy64).
    ///
    /// # Errors
    /// `OutOfBounds` if the range leaves the block; nothing is copied then. `PageFault` is possible only if
    /// `offset` is not a multiple of 8.
    #[inline]
    pub fn store64(&self, offset: usize, data: &[u8; 64]) -> Result<(), AccessError> {
        let Some(words) = self.words(offset) else { return self.write(offset, data) };
        for (bytes, word) in data.chunks_exact(8).zip(words) {
            let mut value = [0; 8];
            value.copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns the eight words at `offset`; `None` unless they are aligned and lie in the block.
    #[inline(always)]
    fn words(&self, offset: usize) -> Option<&[AtomicU64; 8]> {
        if !offset.is_multiple_of(8) {
            return None;
        }
        let start = self.at(offset, 64).ok()?;
        // SAFETY: within the block, which is 64-byte aligned and outlives the reference; see `word`.
        Some(unsafe { &*start.cast::<[AtomicU64; 8]>() })
    }

    /// Returns the address of the byte at `offset` if `len` bytes from there lie in the block.
    #[inline(always)]
    pub(crate) fn at(&self, offset: usize, len: usize) -> Result<*mut u8, AccessError> {
        if offset > self.len || len > self.len - offset {
            return Err(AccessError::OutOfBounds);
        }
        // SAFETY: offset <= len of the block.
        Ok(unsafe { self.start.add(offset) })
    }
}

#[cfg(test)]
mod tests;
