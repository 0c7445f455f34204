//! The allocator of objects: runs of 64-byte lines in one region.

use super::rpc::Refusal;
use crate::region::{Region, Registered};
use offset_allocator::{Allocation, Allocator};

/// Bytes of a line. Objects begin on a cache line.
pub(crate) const LINE: usize = 64;

/// A run of lines that belongs to one object. [`Extents::free`] frees it, exactly once.
#[derive(Copy, Clone)]
pub(crate) struct Extent(Allocation);

impl Extent {
    /// Returns the index of the first line.
    pub(crate) fn line(self) -> u32 {
        self.0.offset
    }

    /// Returns the byte offset of the first line in the region.
    pub(crate) fn offset(self) -> usize {
        self.0.offset as usize * LINE
    }
}

/// The region of objects and its free runs. The allocator's own state is outside the region.
pub(crate) struct Extents {
    pub region: Region,
    allocator: Allocator,
}

/// Returns the number of lines that the allocator takes for a run of `lines` lines.
///
/// The allocator groups free runs by size, with eight classes between a power of two and the next. It
/// searches only classes all of whose runs are long enough. So a freed run whose length is no class size
/// would not be found for the next object of that length.
fn class(lines: usize) -> usize {
    let step = 1 << lines.max(8).ilog2().saturating_sub(3);
    lines.next_multiple_of(step)
}

impl Extents {
    /// Takes the whole block, for at most `objects` objects at the same time.
    pub(crate) fn new(block: Registered, objects: u32) -> Extents {
        let lines = u32::try_from(block.bytes.len() / LINE).unwrap_or(u32::MAX);
        // Each free run needs an allocator node, too: at most one per object. The additional nodes are for
        // objects that are being replaced.
        let nodes = objects.saturating_mul(2).saturating_add(8).min(u32::MAX - 2);
        Extents { region: Region::new(block), allocator: Allocator::with_max_allocs(lines, nodes) }
    }

    /// Takes the whole block after a restart. `runs` are the first line and the length of each object, in
    /// order. Returns `None` if the runs overlap or exceed the block.
    pub(crate) fn reopen(
        block: Registered,
        objects: u32,
        runs: &[(u32, u32)],
    ) -> Option<(Extents, Vec<Extent>)> {
        let lines = u32::try_from(block.bytes.len() / LINE).unwrap_or(u32::MAX);
        // A gap is allocated in pieces before it is freed as a whole.
        let nodes = objects.saturating_mul(4).saturating_add(64).min(u32::MAX - 2);
        let mut allocator = Allocator::with_max_allocs(lines, nodes);
        let mut end = 0;
        let mut gaps = Vec::new();
        let mut held = Vec::with_capacity(runs.len());
        for (line, lines) in runs {
            let mut gap = line.checked_sub(end)?;
            while gap > 0 {
                // An empty allocator returns its lines in order only for lengths that are class sizes.
                let piece = gap - gap % (1 << gap.max(8).ilog2().saturating_sub(3));
                gaps.push(allocator.allocate(piece)?);
                gap -= piece;
            }
            let taken = class(*lines as usize) as u32;
            let extent = Extent(allocator.allocate(taken)?);
            if extent.line() != *line {
                return None;
            }
            held.push(extent);
            end = line + taken;
        }
        gaps.into_iter().for_each(|gap| allocator.free(gap));
        Some((Extents { region: Region::new(block), allocator }, held))
    }

    /// Returns the number of lines for `bytes` bytes.
    pub(crate) fn lines_for(bytes: usize) -> usize {
        bytes.div_ceil(LINE).max(1)
    }

    /// Returns the number of lines that the allocator takes for `bytes` bytes.
    pub(crate) fn lines_taken(bytes: usize) -> usize {
        class(Extents::lines_for(bytes))
    }

    /// Returns true if the extent contains `bytes` from byte `skip` on.
    #[inline]
    pub(crate) fn equal(&self, extent: Extent, skip: usize, bytes: &[u8]) -> bool {
        const PIECE: usize = 256;
        let mut piece = [0; PIECE];
        let mut offset = extent.offset() + skip;
        bytes.chunks(PIECE).all(|expected| {
            let stored = &mut piece[..expected.len()];
            self.region.read(offset, stored);
            offset += expected.len();
            stored == expected
        })
    }

    /// Allocates a run for `bytes` bytes.
    ///
    /// # Errors
    /// `NoSpace`: no free run is long enough.
    pub(crate) fn allocate(&mut self, bytes: usize) -> Result<Extent, Refusal> {
        let lines = u32::try_from(Extents::lines_taken(bytes)).map_err(|_| Refusal::NoSpace)?;
        self.allocator.allocate(lines).map(Extent).ok_or(Refusal::NoSpace)
    }

    /// Frees a run.
    pub(crate) fn free(&mut self, extent: Extent) {
        self.allocator.free(extent.0);
    }

    /// Returns the number of free lines.
    pub(crate) fn free_lines(&self) -> u32 {
        self.allocator.storage_report().total_free_space
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use remora_memory::{Bytes, Key};

    #[test]
    fn classes_are_at_most_an_eighth_longer() {
        let cases =
            [(1, 1), (8, 8), (15, 15), (16, 16), (17, 18), (65, 72), (72, 72), (127, 128), (16385, 18432)];
        for (lines, expected) in cases {
            assert_eq!(class(lines), expected);
        }
        assert!(
            (1..100_000).all(|lines| class(lines) * 8 <= lines * 9 && class(class(lines)) == class(lines))
        );
    }

    /// Regression: freed runs of 65 lines could not be reused for 65 lines, so 4096-byte values exhausted
    /// any memory.
    #[test]
    fn runs_of_one_length_are_replaced_without_end() {
        for bytes in [64, 65 * 64, 100 * 64, 16385 * 64] {
            let lines = Extents::lines_for(bytes);
            let keys = 20;
            // An additional eighth is for the gaps between objects.
            let lines = (keys as usize * class(lines) * 9).div_ceil(8) + 4 * lines + 64;
            let block = Registered { bytes: Bytes::heap(lines * LINE).unwrap(), addr: 64, key: Key::new(1) };
            let mut extents = Extents::new(block, keys + 1);
            let mut held: Vec<Extent> = (0..keys).map(|_| extents.allocate(bytes).unwrap()).collect();
            let mut random = Random::new(1);
            for _ in 0..20_000 {
                let new = extents.allocate(bytes).expect("as much space as before");
                extents.free(std::mem::replace(&mut held[random.below(keys.into()) as usize], new));
            }
        }
    }
}
