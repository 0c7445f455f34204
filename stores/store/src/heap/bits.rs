//! A set of buffers, as a bit vector.

/// A set of buffer indices, with one bit per buffer.
#[derive(Debug)]
pub(crate) struct Bits {
    words: Box<[u64]>,
}

impl Bits {
    /// Returns an empty set of `count` buffers.
    pub(crate) fn new(count: usize) -> Bits {
        Bits { words: vec![0; count.div_ceil(64)].into_boxed_slice() }
    }

    /// Returns the words of the set. Bit 0 of word `n` is buffer `64 * n`.
    pub(crate) fn words(&mut self) -> &mut [u64] {
        &mut self.words
    }

    /// Removes a buffer from the set.
    pub(crate) fn clear(&mut self, index: usize) {
        self.words[index / 64] &= !(1 << (index % 64));
    }

    /// Returns the first buffer of the set with an index of `first` or more.
    pub(crate) fn next(&self, first: usize) -> Option<usize> {
        let mut word = first / 64;
        let mut bits = self.words.get(word)? & (u64::MAX << (first % 64));
        while bits == 0 {
            word += 1;
            bits = *self.words.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }
}
