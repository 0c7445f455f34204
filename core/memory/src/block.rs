//! Blocks of memory: where they come from, and how they are released.

use crate::Error;
use crate::access::ENOMEM;
#[cfg(all(target_os = "linux", not(miri)))]
use crate::mapping::{self, Mapping};
use crate::on_nic::Extent;
use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Arc;

/// An owned block; dropping it releases the memory. Only [`Bytes`](crate::Bytes) holds blocks, behind an
/// `Arc`.
#[derive(Debug)]
pub(crate) struct Block {
    pub start: NonNull<u8>,
    pub len: usize,
    origin: Origin,
}

#[derive(Debug)]
enum Origin {
    Heap(Layout),
    #[cfg(all(target_os = "linux", not(miri)))]
    Mapped(Mapping),
    /// A piece of on-NIC memory. Dropping the block releases the extent; until then the whole on-NIC memory
    /// stays mapped.
    OnNic {
        _extent: Extent,
        _whole: Arc<Block>,
    },
}

// SAFETY: a block is an address range. All access to it is by copies and atomics that tolerate races, from
// any thread.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

/// Smallest size in bytes of a block that gets a mapping of its own, populated, and in huge pages where
/// available.
#[cfg(all(target_os = "linux", not(miri)))]
const PAGES_FROM: usize = 256 << 10;

impl Block {
    /// Allocates `len` zeroed bytes of this process.
    pub(crate) fn heap(len: usize) -> Result<Block, Error> {
        if len == 0 {
            return Err(Error::Invalid);
        }
        #[cfg(all(target_os = "linux", not(miri)))]
        if len >= PAGES_FROM {
            return mapping::anonymous(len).map(Block::mapped);
        }
        let align = if len >= 4096 { 4096 } else { 64 };
        let layout = Layout::from_size_align(len, align).map_err(|_| Error::Invalid)?;
        // SAFETY: the size is not zero.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or(Error::Os(ENOMEM))?;
        Ok(Block { start, len, origin: Origin::Heap(layout) })
    }

    /// Returns `len` zeroed bytes whose pages take memory once they are written.
    pub(crate) fn zeros(len: usize) -> Result<Block, Error> {
        #[cfg(all(target_os = "linux", not(miri)))]
        if len >= PAGES_FROM {
            return mapping::lazy(len).map(Block::mapped);
        }
        Block::heap(len)
    }

    /// Wraps a mapping.
    #[cfg(all(target_os = "linux", not(miri)))]
    pub(crate) fn mapped(mapping: Mapping) -> Block {
        Block { start: mapping.start, len: mapping.len, origin: Origin::Mapped(mapping) }
    }

    /// Wraps the piece of on-NIC memory that begins at `start` within `whole`.
    pub(crate) fn on_nic(start: NonNull<u8>, whole: Arc<Block>, extent: Extent) -> Block {
        Block { start, len: extent.len(), origin: Origin::OnNic { _extent: extent, _whole: whole } }
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    pub(crate) fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        match &self.origin {
            Origin::Mapped(mapping) => mapping.fd.as_ref().map(AsFd::as_fd),
            _ => None,
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Origin::Heap(layout) = &self.origin {
            // SAFETY: allocated with this layout, and no `Bytes` is left that could reach it.
            unsafe { std::alloc::dealloc(self.start.as_ptr(), *layout) };
        }
    }
}
