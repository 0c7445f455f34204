//! The initial contents of a table, counted before its memory is allocated.

use std::collections::BTreeMap;

/// The number of objects by their length. Each design computes its memory from it, because its buffers or
/// lines have sizes of their own.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Number of objects by their length in bytes, rounded up to a multiple of [`STEP`].
    lens: BTreeMap<u32, u64>,
}

/// Granularity of the lengths in bytes. The headers and buffers of all designs are multiples of it, and it
/// keeps the map small for any file.
const STEP: usize = 8;

/// Upper bounds over all designs: bytes of an object in addition to key and value, and the least payload of
/// a 64-byte line.
const HEADER: u64 = 64;
const PAYLOAD: u64 = 56;
/// Additional bytes for the longest object, wherever it is placed.
const SPARE: u64 = 4 << 20;

impl Contents {
    /// Adds `count` objects with `bytes` bytes of key and value each.
    pub fn add(&mut self, bytes: usize, count: u64) {
        if count > 0 {
            *self.lens.entry(bytes.next_multiple_of(STEP) as u32).or_default() += count;
        }
    }

    /// Returns the number of objects.
    pub fn count(&self) -> u64 {
        self.lens.values().sum()
    }

    /// Returns each length of key and value in bytes, and the number of objects with that length.
    pub fn lens(&self) -> impl Iterator<Item = (u32, u64)> {
        self.lens.iter().map(|(bytes, count)| (*bytes, *count))
    }

    /// Returns the maximum number of bytes that the objects take in any design that stores them in runs of
    /// lines. Runs may be an eighth longer, and another eighth is for the gaps between them and for
    /// overwrites.
    pub fn bytes(&self) -> u64 {
        let lines = |(bytes, count): (u32, u64)| (u64::from(bytes) + HEADER).div_ceil(PAYLOAD) * count;
        let lines: u64 = self.lens().map(lines).sum();
        lines * 64 * 81 / 64 + SPARE
    }
}
