//! A replica's blocks, each with its lock.

use nic::Remote;
use std::sync::atomic::Ordering;

use super::super::grant::WORD;
use super::super::{Design, Grant, Layout, Tag};
use super::verbs::{self, CHECKED_AT};
use crate::Registered;
use crate::heap::{Class, Reachable};
use crate::region::Region;

/// The blocks of a replica. Clients change them; the replica's own program breaks locks, and fills blocks before there are clients.
///
/// A lock holds its connection's lease: a number that this replica gives once. The lock of a lease that has ended is broken: its queue
/// pair is gone, so nothing that its client sent under the lock comes any more.
#[derive(Debug)]
pub struct Table {
    layout: Layout,
    region: Region,
    /// The lease that was given last.
    last: u64,
}

impl Table {
    /// Bytes of memory that it needs.
    pub fn len(layout: Layout) -> usize {
        layout.blocks as usize * verbs::stride(&layout)
    }

    /// Blocks that were never written. None: the memory is too short, or the layout impossible.
    pub fn format(layout: Layout, memory: Registered) -> Option<Table> {
        let mut table = Table::open(layout, memory)?;
        let zeros = vec![0; layout.block_len as usize];
        for block in 0..layout.blocks {
            table.region.store(table.at(block), 0);
            table.put(block, Tag::NEVER, &zeros);
        }
        Some(table)
    }

    /// The blocks that are in memory, after a restart with it: all connections have ended, and so all locks are broken. None as
    /// with [`Table::format`].
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
        let mut bytes = vec![0; verbs::checked_len(&self.layout)];
        bytes[WORD..WORD + value.len()].copy_from_slice(value);
        verbs::seal(&mut bytes, tag);
        let at = self.at(block) + CHECKED_AT;
        self.region.write(at, &bytes);
        self.region.write(at + bytes.len(), &bytes);
    }

    /// A block as other replicas have it, before there are clients. False: there is no such block, or the value is not as long
    /// as one.
    pub fn install(&mut self, block: u64, tag: Tag, value: &[u8]) -> bool {
        let fits = block < self.layout.blocks && value.len() == self.layout.block_len as usize;
        if fits {
            self.put(block, tag, value);
        }
        fits
    }

    /// What a new connection is told: its lease is like no other of this table.
    pub fn grant(&mut self) -> Grant {
        self.last += 1;
        let table = Remote { addr: self.region.block().addr, rkey: self.region.block().key };
        let class = Class { list: 0, base: 0, size: 0, count: 0 };
        Grant { design: Design::AbdLock, layout: self.layout, table, class, lease: self.last }
    }

    /// Breaks the locks of connections that have ended, their queue pairs with them; `lives` says which leases have not. How many.
    pub fn break_locks(&self, lives: impl Fn(u64) -> bool) -> usize {
        let broken = |block| {
            let word = self.region.block().bytes.word(self.at(block)).expect("a block's lock");
            let lease = word.load(Ordering::Relaxed);
            // Whoever got it meanwhile keeps it.
            let dead = lease != 0 && !lives(lease);
            dead && word.compare_exchange(lease, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        (0..self.layout.blocks).filter(|block| broken(*block)).count()
    }
}

/// Blocks lie in place: there are no buffers.
impl Reachable for Table {
    fn entries(&self) -> usize {
        0
    }

    fn buffers(&self, _: usize, _: &mut dyn FnMut(u64)) {}
}
