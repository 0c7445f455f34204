//! The table of a PRISM-RS replica: ⟨tag, address⟩ for each block.

use remora_nic::Remote;

use super::super::grant::WORD;
use super::super::{Design, Grant, Layout, Tag};
use crate::heap::{Class, Classes, Reachable};
use crate::region::Region;
use crate::{Registered, words};

/// The table of a replica. Clients modify it by RDMA. The replica's own program reads it, and fills it
/// before there are clients.
#[derive(Debug)]
pub struct Table {
    layout: Layout,
    region: Region,
}

impl Table {
    /// Initialises a table in memory whose blocks were never written. They point to a buffer of zeros behind
    /// the table that belongs to no free list. Returns `None` if the memory is too short or the layout
    /// invalid.
    pub fn format(layout: Layout, memory: Registered) -> Option<Table> {
        let mut table = Table::open(layout, memory)?;
        table.region.write(layout.zeros(), &vec![0; layout.buffer_len()]);
        let zeros = table.zeros();
        for block in 0..layout.blocks {
            table.set(block, Tag::NEVER, zeros);
        }
        Some(table)
    }

    /// Opens the table that is in memory. Returns `None` if the memory is too short or the layout invalid.
    pub fn open(layout: Layout, memory: Registered) -> Option<Table> {
        let fits = layout.is_sound() && memory.bytes.len() >= layout.table_len();
        fits.then(|| Table { layout, region: Region::new(memory) })
    }

    fn zeros(&self) -> u64 {
        self.region.block().addr + self.layout.zeros() as u64
    }

    fn set(&mut self, block: u64, tag: Tag, address: u64) {
        self.region.store(self.layout.entry(block), tag.0);
        self.region.store(self.layout.entry(block) + WORD, address);
    }

    /// Stores a block that was read from other replicas in the buffer with this number. Call it before there
    /// are clients, and before the buffers are posted. Returns false if there is no such block or buffer, or
    /// if the value does not have the length of a block.
    pub fn install(&mut self, block: u64, tag: Tag, value: &[u8], class: &Class, buffer: u32) -> bool {
        let fits = block < self.layout.blocks
            && buffer < class.count
            && value.len() == self.layout.block_len as usize;
        if fits && tag != Tag::NEVER {
            let offset = (class.address(buffer) - self.region.block().addr) as usize;
            self.region.write(offset, &tag.0.to_le_bytes());
            self.region.write(offset + WORD, value);
            self.set(block, tag, class.address(buffer));
        }
        fits
    }

    /// Returns the grant that clients get, or `None` if no size class fits a block.
    pub fn grant(&self, classes: &Classes) -> Option<Grant> {
        let len = self.layout.tagged_len();
        let class = classes.all()[classes.for_len(len as u64)?];
        let table = Remote { addr: self.region.block().addr, rkey: self.region.block().key };
        Some(Grant { design: Design::PrismRs, layout: self.layout, table, class, lease: 0 })
    }

    /// Returns the tag of a block in the metadata, and the tag in its buffer. Both are equal at any moment.
    pub fn tags(&self, block: u64) -> (Tag, Tag) {
        let offset = self.layout.entry(block);
        let buffer = (self.region.load(offset + WORD) - self.region.block().addr) as usize;
        let mut tag = [0; WORD];
        self.region.read(buffer, &mut tag);
        (Tag(self.region.load(offset)), Tag(words::u64_at(&tag, 0)))
    }
}

impl Reachable for Table {
    fn entries(&self) -> usize {
        self.layout.blocks as usize
    }

    fn buffers(&self, entry: usize, report: &mut dyn FnMut(u64)) {
        let address = self.region.load(self.layout.entry(entry as u64) + WORD);
        if address != self.zeros() {
            report(address);
        }
    }
}
