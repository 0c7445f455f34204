//! What a table begins with, counted before there is memory for it.

use std::collections::BTreeMap;

/// Objects by their bytes of key and value: so much memory is taken in each design, whose buffers or lines
/// have sizes of their own.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Bytes, up to the next multiple of [`STEP`], and how many have so many.
    lens: BTreeMap<u32, u64>,
}

/// Bytes that make no difference: headers and buffers of all designs are multiples of it. So a count of any
/// file is small.
const STEP: usize = 8;

/// Bytes of an object beside key and value, and of those the payload of a line of 64 bytes, where that is
/// least.
const HEADER: u64 = 64;
const PAYLOAD: u64 = 56;
/// For the longest object, wherever it comes to lie.
const SPARE: u64 = 4 << 20;

impl Contents {
    /// So many more objects with so many bytes of key and value.
    pub fn add(&mut self, bytes: usize, count: u64) {
        if count > 0 {
            *self.lens.entry(bytes.next_multiple_of(STEP) as u32).or_default() += count;
        }
    }

    /// All objects.
    pub fn count(&self) -> u64 {
        self.lens.values().sum()
    }

    /// Bytes of key and value, and how many objects have so many.
    pub fn lens(&self) -> impl Iterator<Item = (u32, u64)> {
        self.lens.iter().map(|(bytes, count)| (*bytes, *count))
    }

    /// Bytes that they take at most in any of the designs whose objects lie in runs of lines: runs may be an
    /// eighth longer, and an eighth is for the gaps between them and to overwrite.
    pub fn bytes(&self) -> u64 {
        let lines = |(bytes, count): (u32, u64)| (u64::from(bytes) + HEADER).div_ceil(PAYLOAD) * count;
        let lines: u64 = self.lens().map(lines).sum();
        lines * 64 * 81 / 64 + SPARE
    }
}
