//! The memory on the NIC (256 KiB on a ConnectX-5): which parts of it are taken.

use crate::Error;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Grain of allocation, bytes: a cache line.
const GRAIN: usize = 64;

/// The free parts, shared by the table and by every extent, which gives itself back.
#[derive(Debug, Clone)]
pub(crate) struct Allocator {
    /// Length of each free extent by its offset; neighbours are always joined.
    free: Arc<Mutex<BTreeMap<usize, usize>>>,
}

/// A taken part.
#[derive(Debug)]
pub(crate) struct Extent {
    offset: usize,
    len: usize,
    owner: Allocator,
}

impl Allocator {
    pub fn new(len: usize) -> Allocator {
        let whole = if len == 0 { BTreeMap::new() } else { BTreeMap::from([(0, len)]) };
        Allocator { free: Arc::new(Mutex::new(whole)) }
    }

    /// The first free part that is large enough.
    pub fn take(&self, len: usize) -> Result<Extent, Error> {
        if len == 0 {
            return Err(Error::Invalid);
        }
        let room = len.checked_next_multiple_of(GRAIN).ok_or(Error::Full)?;
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let (&offset, &have) = free.iter().find(|(_, have)| **have >= room).ok_or(Error::Full)?;
        free.remove(&offset);
        if have > room {
            free.insert(offset + room, have - room);
        }
        Ok(Extent { offset, len, owner: self.clone() })
    }
}

impl Extent {
    pub fn offset(&self) -> usize {
        self.offset
    }

    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        let mut free = self.owner.free.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut offset, mut len) = (self.offset, self.len.next_multiple_of(GRAIN));
        if let Some(after) = free.remove(&(offset + len)) {
            len += after;
        }
        if let Some((&before, &before_len)) = free.range(..offset).next_back()
            && before + before_len == offset
        {
            free.remove(&before);
            (offset, len) = (before, before_len + len);
        }
        free.insert(offset, len);
    }
}
