//! The allocator of on-NIC memory (256 KiB on a ConnectX-5).

use crate::Error;
use crate::pass::Stamp;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Alignment and granularity in bytes of the memory that programs allocate: a cache line.
pub(crate) const LINE: usize = 64;

/// The allocator, shared by the table and by every extent, which frees itself when dropped.
#[derive(Debug, Clone)]
pub(crate) struct Allocator(Arc<Mutex<Parts>>);

#[derive(Debug)]
struct Parts {
    /// Length of each free extent by its offset; adjacent extents are always joined.
    free: BTreeMap<usize, usize>,
    /// Freed extents (offset, length) that passes in progress may still touch.
    resting: Vec<(Stamp, usize, usize)>,
}

/// An allocated extent.
#[derive(Debug)]
pub(crate) struct Extent {
    offset: usize,
    len: usize,
    /// Number of bytes reserved for the extent: `len`, rounded up.
    reserved: usize,
    /// The passes that must end before the extent is reused; `None` if no pass can touch it.
    stamp: Option<Stamp>,
    owner: Allocator,
}

impl Allocator {
    pub(crate) fn new(len: usize) -> Allocator {
        let free = if len == 0 { BTreeMap::new() } else { BTreeMap::from([(0, len)]) };
        Allocator(Arc::new(Mutex::new(Parts { free, resting: Vec::new() })))
    }

    /// Allocates the first free extent that is large enough. Offset and reserved length are multiples of
    /// `grain` (a power of two).
    pub(crate) fn take(&self, len: usize, grain: usize) -> Result<Extent, Error> {
        if len == 0 {
            return Err(Error::Invalid);
        }
        let reserved = len.checked_next_multiple_of(grain).ok_or(Error::Full)?;
        let mut parts = self.parts();
        parts.wake();
        let fits = |(&offset, &have): (&usize, &usize)| {
            let skip = offset.next_multiple_of(grain) - offset;
            (have.saturating_sub(skip) >= reserved).then_some((offset, have, skip))
        };
        let (free_at, have, skip) = parts.free.iter().find_map(fits).ok_or(Error::Full)?;
        let offset = free_at + skip;
        parts.free.remove(&free_at);
        if skip > 0 {
            parts.free.insert(free_at, skip);
        }
        if have > skip + reserved {
            parts.free.insert(offset + reserved, have - skip - reserved);
        }
        drop(parts);
        Ok(Extent { offset, len, reserved, stamp: None, owner: self.clone() })
    }

    /// Returns whether freed extents are waiting for passes to end.
    pub(crate) fn is_resting(&self) -> bool {
        !self.parts().resting.is_empty()
    }

    /// Returns whether the extent belongs to this allocator.
    pub(crate) fn owns(&self, extent: &Extent) -> bool {
        Arc::ptr_eq(&self.0, &extent.owner.0)
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Parts {
    /// Frees the extents whose passes have ended.
    fn wake(&mut self) {
        let over = |part: &mut (Stamp, usize, usize)| part.0.is_over();
        let woken: Vec<_> = self.resting.extract_if(.., over).collect();
        for (_, offset, reserved) in woken {
            self.give_back(offset, reserved);
        }
    }

    fn give_back(&mut self, mut offset: usize, mut reserved: usize) {
        if let Some(after) = self.free.remove(&(offset + reserved)) {
            reserved += after;
        }
        if let Some((&before, &before_len)) = self.free.range(..offset).next_back()
            && before + before_len == offset
        {
            self.free.remove(&before);
            (offset, reserved) = (before, before_len + reserved);
        }
        self.free.insert(offset, reserved);
    }
}

impl Extent {
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Frees the extent for reuse once the passes of the stamp have ended.
    pub(crate) fn rest(mut self, stamp: Stamp) {
        self.stamp = Some(stamp);
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        let mut parts = self.owner.parts();
        match self.stamp.take().filter(|stamp| !stamp.is_over()) {
            Some(stamp) => parts.resting.push((stamp, self.offset, self.reserved)),
            None => parts.give_back(self.offset, self.reserved),
        }
    }
}
