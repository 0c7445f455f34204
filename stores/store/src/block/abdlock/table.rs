//! The blocks of an ABDLOCK replica, each with its lock.

use remora_nic::Remote;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::grant::WORD;
use super::super::{Design, Grant, Layout, Tag};
use super::verbs;
use crate::Registered;
use crate::heap::{Class, Reachable};
use crate::region::Region;

/// The blocks of a replica. Clients modify them by RDMA. The replica's own program breaks locks, and fills
/// blocks before there are clients.
///
/// A lock holds its connection's lease: a number that this replica issues once. The replica breaks the lock
/// of a lease that has ended. The queue pair of that lease no longer exists, so no request that its client
/// sent under the lock can still arrive.
#[derive(Debug)]
pub struct Table {
    layout: Layout,
    region: Region,
    /// The lease that was issued last.
    last: u64,
}

impl Table {
    /// Returns the bytes of memory that the table needs.
    pub fn len(layout: Layout) -> usize {
        layout.blocks as usize * verbs::stride(&layout)
    }

    /// Initialises memory with blocks that were never written. Returns `None` if the memory is too short or
    /// the layout invalid.
    pub fn format(layout: Layout, memory: Registered) -> Option<Table> {
        let mut table = Table::open(layout, memory)?;
        let zeros = vec![0; layout.block_len as usize];
        for block in 0..layout.blocks {
            table.region.store(table.at(block) + verbs::lock_at(&layout), 0);
            table.put(block, Tag::NEVER, &zeros);
        }
        Some(table)
    }

    /// Opens the blocks that are in memory after a restart that kept it. All connections have ended, so all
    /// locks are broken. Returns `None` if the memory is too short or the layout invalid.
    pub fn open(layout: Layout, memory: Registered) -> Option<Table> {
        let fits = layout.is_sound() && memory.bytes.len() >= Table::len(layout);
        let table = fits.then(|| Table { layout, region: Region::new(memory), last: 0 })?;
        table.break_locks(|_| false);
        Some(table)
    }

    fn at(&self, block: u64) -> usize {
        block as usize * verbs::stride(&self.layout)
    }

    fn put(&mut self, block: u64, tag: Tag, value: &[u8]) {
        let mut sealed = vec![0; verbs::sealed_len(&self.layout)];
        sealed[WORD..WORD + value.len()].copy_from_slice(value);
        verbs::seal(&mut sealed, tag);
        for copy in [0, 1] {
            let part = &sealed[verbs::copy_in_sealed(copy)..][..verbs::copy_len(&self.layout)];
            let first = verbs::value_at(&self.layout, copy).min(verbs::tag_at(&self.layout, copy));
            let offset = self.at(block) + first;
            self.region.write(offset, part);
        }
    }

    /// Stores a block that was read from other replicas, before there are clients. Returns false if there is
    /// no such block or if the value does not have the length of a block.
    pub fn install(&mut self, block: u64, tag: Tag, value: &[u8]) -> bool {
        let fits = block < self.layout.blocks && value.len() == self.layout.block_len as usize;
        if fits {
            self.put(block, tag, value);
        }
        fits
    }

    /// Returns the grant of a new connection. Its lease is unique in this table.
    pub fn grant(&mut self) -> Grant {
        self.last += 1;
        let table = Remote { addr: self.region.block().addr, rkey: self.region.block().key };
        let class = Class { list: 0, base: 0, size: 0, count: 0 };
        Grant { design: Design::AbdLock, layout: self.layout, table, class, lease: self.last }
    }

    /// Breaks the locks of connections whose queue pairs have ended, and returns their number. `lives`
    /// returns true for leases that have not ended.
    ///
    /// The copy that the owner of such a lock was writing may be torn. Its tag is reset before another
    /// client gets the lock, so a client can trust a tag without reading the value.
    pub fn break_locks(&self, lives: impl Fn(u64) -> bool) -> usize {
        let broken = |block| {
            let word = self.word(block, verbs::lock_at(&self.layout));
            let lease = word.load(Ordering::Acquire);
            // The exchange fails if another client acquired the lock in the meantime; that client keeps the
            // lock.
            let dead = lease != 0 && !lives(lease);
            if dead {
                self.drop_torn(block);
            }
            dead && word.compare_exchange(lease, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        (0..self.layout.blocks).filter(|block| broken(*block)).count()
    }

    fn word(&self, block: u64, offset: usize) -> &AtomicU64 {
        self.region.block().bytes.word(self.at(block) + offset).expect("a word of a block")
    }

    /// Resets the tag of a torn copy to "never written". The lock's owner is dead, so no client modifies the
    /// block.
    fn drop_torn(&self, block: u64) {
        let mut bytes = vec![0; verbs::whole_len(&self.layout)];
        self.region.read(self.at(block), &mut bytes);
        let torn = |copy: &usize| !verbs::is_whole(&self.layout, &bytes, *copy);
        for copy in [0, 1].into_iter().filter(torn) {
            self.word(block, verbs::tag_at(&self.layout, copy)).store(Tag::NEVER.0, Ordering::Relaxed);
        }
    }
}

/// Reports no buffers, because blocks are updated in place.
impl Reachable for Table {
    fn entries(&self) -> usize {
        0
    }

    fn buffers(&self, _: usize, _: &mut dyn FnMut(u64)) {}
}

#[cfg(test)]
mod tests {
    use remora_memory::{Bytes, Key};

    use super::*;

    const LAYOUT: Layout = Layout { blocks: 3, block_len: 512 };

    #[test]
    fn what_was_torn_under_a_lock_has_no_tag_when_the_lock_is_broken() {
        let bytes = Bytes::heap(Table::len(LAYOUT)).unwrap();
        let memory = Registered { bytes, addr: 0, key: Key::new(1) };
        let mut table = Table::format(LAYOUT, memory.clone()).unwrap();
        (0..3).for_each(|block| assert!(table.install(block, Tag(7), &[7; 512])));
        let word = |block: usize, offset| memory.bytes.word(block * verbs::stride(&LAYOUT) + offset).unwrap();
        let tags =
            |block| [0, 1].map(|copy| word(block, verbs::tag_at(&LAYOUT, copy)).load(Ordering::Relaxed));
        let lock = |block| word(block, verbs::lock_at(&LAYOUT));
        // The live client has written half of a copy of block 0, the dead client half of a copy of block 1.
        // The dead client has only read the tags of block 2.
        for (block, lease) in [(0, 1), (1, 2), (2, 2)] {
            lock(block).store(lease, Ordering::Relaxed);
        }
        for block in [0, 1] {
            word(block, verbs::tag_at(&LAYOUT, 1)).store(9, Ordering::Relaxed);
            word(block, verbs::value_at(&LAYOUT, 1)).store(1, Ordering::Relaxed);
        }
        assert_eq!(table.break_locks(|lease| lease == 1), 2);
        assert_eq!([0, 1, 2].map(|block| lock(block).load(Ordering::Relaxed)), [1, 0, 0]);
        assert_eq!([0, 1, 2].map(tags), [[7, 9], [7, 0], [7, 7]]);
        // The replica restarts with its memory, but without its connections.
        drop(Table::open(LAYOUT, memory.clone()).unwrap());
        assert_eq!((lock(0).load(Ordering::Relaxed), tags(0)), (0, [7, 0]));
    }
}
