//! State that the lanes of a kernel share: its access rights and the memory of its answers.

use remora_memory::{Access, Key, Mem, Pd, Span};
use remora_transport::rc::strom::Part;

/// Spare bytes of a block beyond the longest answer, because a kernel may read slightly more than it sends,
/// for example a checksum.
pub const SPARE: u32 = 64;

/// Identity of a deployed kernel: its index in the table, and a number that distinguishes it from earlier
/// kernels at the same index.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelId {
    pub place: u32,
    pub number: u32,
}

/// Identity of a lane: the table index of its kernel, and its index among the kernel's lanes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct LaneId {
    pub place: u32,
    pub index: u32,
}

impl LaneId {
    /// Identifier of no lane.
    pub(crate) const NONE: LaneId = LaneId { place: u32::MAX, index: u32::MAX };
}

/// A packet for a lane, without its payload.
#[derive(Copy, Clone, Debug)]
pub(super) struct Piece {
    pub part: Part,
    /// Address of a WRITE that is also placed in memory; `None` for an RPC.
    pub passing: Option<u64>,
}

/// The memory of one answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The kernel that owns the block.
    pub kernel: KernelId,
    /// Index of the block among the kernel's blocks.
    pub index: u32,
}

/// Location of a message's data.
#[derive(Copy, Clone, Debug)]
pub(super) struct Source {
    pub block: Block,
    /// True if few free blocks are left.
    pub scarce: bool,
}

/// The access rights of a kernel.
#[derive(Copy, Clone)]
pub(super) struct Reach<'r, 'm> {
    pub mem: Mem<'m>,
    pub pd: Pd,
    pub grants: &'r [Key],
}

impl<'m> Reach<'_, 'm> {
    /// Returns the memory range if one of the granted keys covers it.
    #[inline]
    pub(super) fn span(&self, va: u64, len: usize, access: Access) -> Option<Span<'m>> {
        let granted = |key: &Key| self.mem.check(self.pd, *key, va, len, access).ok();
        self.grants.iter().find_map(granted)
    }
}

/// State that the lanes of a kernel share.
pub(super) struct Base {
    pub id: KernelId,
    pub pd: Pd,
    pub opcode: Option<u64>,
    pub grants: Box<[Key]>,
    /// The memory of each block.
    pub(super) memory: Box<[Box<[u8]>]>,
    pub longest: u32,
    pub limit: u64,
    /// Free blocks; the last one is used next, because it is in the cache.
    pub free: Vec<u32>,
    pub(super) blocks: u32,
    /// A lane waits for a block.
    pub starves: bool,
    /// The kernel accepts no requests and is removed when its last answer is acknowledged.
    pub leaving: bool,
    pub requests: u64,
    pub failures: u64,
    pub steps: u64,
}

impl Base {
    /// Returns the memory of a block.
    #[inline]
    pub(crate) fn block(&self, index: u32) -> &[u8] {
        &self.memory[index as usize]
    }

    /// Returns the memory of a block for writing.
    #[inline]
    pub(crate) fn block_mut(&mut self, index: u32) -> &mut [u8] {
        &mut self.memory[index as usize]
    }

    /// Returns true if more blocks are in use than free. Answers then request immediate acknowledgements.
    pub(crate) fn is_scarce(&self) -> bool {
        self.free.len() < self.blocks as usize / 2
    }

    /// Returns true if a lane waits for a block and one is free.
    #[inline]
    pub(crate) fn can_feed(&self) -> bool {
        self.starves && !self.free.is_empty()
    }

    /// Returns the access rights of the kernel's lanes.
    pub(crate) fn reach<'m>(&self, mem: Mem<'m>) -> Reach<'_, 'm> {
        Reach { mem, pd: self.pd, grants: &self.grants }
    }
}
