//! Memory that remote clients read while the server changes it. All stores of a server go through this
//! module, because their order decides what a client can see.

use remora_memory::{Bytes, Key};
use remora_nic::{Remote, Sge};
use std::sync::atomic::{Ordering, fence};

/// A block of registered memory, with the address and key by which the NIC knows it.
#[derive(Clone, Debug)]
pub struct Registered {
    /// The bytes of the block.
    pub bytes: Bytes,
    /// Address of the first byte in the region's own address space.
    pub addr: u64,
    /// The key of the region, both lkey and rkey.
    pub key: Key,
}

impl Registered {
    /// Returns the block's address and key for use by a peer.
    pub fn remote(&self) -> Remote {
        Remote { addr: self.addr, rkey: self.key }
    }

    /// Returns the scatter/gather element for `len` bytes at `offset`, for a local work request.
    #[inline]
    pub(crate) fn sge(&self, offset: usize, len: usize) -> Sge {
        Sge { addr: self.addr + offset as u64, len: len as u32, lkey: self.key }
    }

    /// Copies `out.len()` bytes from `offset` of the block to `out`.
    #[inline]
    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) {
        self.bytes.read(offset, out).expect("the layout was checked against the block at set-up");
    }

    /// Copies `data` to `offset` of the block.
    #[inline]
    pub(crate) fn write(&self, offset: usize, data: &[u8]) {
        self.bytes.write(offset, data).expect("the layout was checked against the block at set-up");
    }
}

/// A server's view of memory that clients may READ at any moment.
///
/// Stores of words become visible one by one. [`Region::barrier`] orders the stores before it and the stores
/// after it.
#[derive(Debug)]
pub(crate) struct Region {
    block: Registered,
}

impl Region {
    pub(crate) fn new(block: Registered) -> Region {
        Region { block }
    }

    pub(crate) fn block(&self) -> &Registered {
        &self.block
    }

    /// Returns the word at `offset`, which is a multiple of 8 inside the region.
    #[inline]
    pub(crate) fn load(&self, offset: usize) -> u64 {
        self.block.bytes.word(offset).expect("an aligned word of the region").load(Ordering::Relaxed)
    }

    /// Stores the word at `offset`, a multiple of 8 inside the region.
    #[inline]
    pub(crate) fn store(&mut self, offset: usize, word: u64) {
        #[cfg(test)]
        crate::kv::tests::journal::note(self.block.addr + offset as u64, word);
        self.block.bytes.word(offset).expect("an aligned word of the region").store(word, Ordering::Relaxed);
    }

    /// Makes all stores before the call visible before any store after it.
    #[inline]
    pub(crate) fn barrier(&self) {
        fence(Ordering::Release);
    }

    /// Copies `out.len()` bytes from `offset` of the region to `out`.
    #[inline]
    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) {
        self.block.read(offset, out);
    }

    /// Copies `data` to `offset` of the region. The bytes become visible in no particular order.
    #[inline]
    pub(crate) fn write(&mut self, offset: usize, data: &[u8]) {
        #[cfg(test)]
        if crate::kv::tests::journal::is_open() {
            return self.write_by_words(offset, data);
        }
        self.block.write(offset, data);
    }

    /// Copies `data` to `offset` as `write` does, but logs each aligned word as a step of its own.
    #[cfg(test)]
    fn write_by_words(&mut self, offset: usize, data: &[u8]) {
        let mut position = offset & !7;
        while position < offset + data.len() {
            let mut word = self.load(position).to_le_bytes();
            for (place, byte) in word.iter_mut().enumerate() {
                if let Some(new) = (position + place).checked_sub(offset).and_then(|index| data.get(index)) {
                    *byte = *new;
                }
            }
            self.store(position, u64::from_le_bytes(word));
            position += 8;
        }
    }
}
