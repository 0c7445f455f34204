//! What the lanes of a kernel share: its rights, and the memory that its answers leave from.

use remora_memory::{Access, Key, Mem, Pd, Span};
use remora_transport::rc::strom::Part;

/// Bytes of a block behind the longest answer: a kernel may read a little more than it answers, a check value
/// for example.
pub const SPARE: u32 = 64;

/// A deployed kernel: its place in the table, and the number that tells it from earlier kernels of that
/// place.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelId {
    pub place: u32,
    pub number: u32,
}

/// A lane: the place of its kernel in the table, and its index among the kernel's lanes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct LaneId {
    pub place: u32,
    pub index: u32,
}

impl LaneId {
    /// No lane.
    pub const NONE: LaneId = LaneId { place: u32::MAX, index: u32::MAX };
}

/// A packet for a lane, but for its bytes.
#[derive(Copy, Clone, Debug)]
pub(super) struct Piece {
    pub part: Part,
    /// The address of a WRITE that is placed in memory as well. None: an RPC.
    pub passing: Option<u64>,
}

/// The memory of one answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The kernel that it belongs to.
    pub kernel: KernelId,
    /// Its index among the kernel's blocks.
    pub index: u32,
}

/// Where the bytes of a message stand.
#[derive(Copy, Clone, Debug)]
pub(super) struct Source {
    pub block: Block,
    /// Few such blocks are left.
    pub scarce: bool,
}

/// What a kernel may touch.
#[derive(Copy, Clone)]
pub(super) struct Reach<'r, 'm> {
    pub mem: Mem<'m>,
    pub pd: Pd,
    pub grants: &'r [Key],
}

impl<'m> Reach<'_, 'm> {
    /// Memory under one of the keys granted.
    #[inline]
    pub(super) fn span(&self, va: u64, len: usize, access: Access) -> Option<Span<'m>> {
        let granted = |key: &Key| self.mem.check(self.pd, *key, va, len, access).ok();
        self.grants.iter().find_map(granted)
    }
}

/// What the lanes of a kernel share.
pub(super) struct Base {
    pub id: KernelId,
    pub pd: Pd,
    pub opcode: Option<u64>,
    pub grants: Box<[Key]>,
    /// The memory of each block.
    pub(super) memory: Box<[Box<[u8]>]>,
    pub longest: u32,
    pub limit: u64,
    /// Blocks that hold no answer, the last one used first: it is the one in the cache.
    pub free: Vec<u32>,
    pub(super) blocks: u32,
    /// A lane waits for a block.
    pub starves: bool,
    /// It takes nothing new, and is gone when its last answer is.
    pub leaving: bool,
    pub requests: u64,
    pub failures: u64,
    pub steps: u64,
}

impl Base {
    /// The bytes of a block.
    #[inline]
    pub fn block(&self, index: u32) -> &[u8] {
        &self.memory[index as usize]
    }

    /// The same, to be written.
    #[inline]
    pub fn block_mut(&mut self, index: u32) -> &mut [u8] {
        &mut self.memory[index as usize]
    }

    /// Are more blocks in use than free? Then answers ask for acknowledgements at once.
    pub fn is_scarce(&self) -> bool {
        self.free.len() < self.blocks as usize / 2
    }

    /// Does a lane wait for a block although there is one?
    #[inline]
    pub fn can_feed(&self) -> bool {
        self.starves && !self.free.is_empty()
    }

    /// What its lanes may touch.
    pub fn reach<'m>(&self, mem: Mem<'m>) -> Reach<'_, 'm> {
        Reach { mem, pd: self.pd, grants: &self.grants }
    }
}
