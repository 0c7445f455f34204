//! A set of buffers.

/// One bit a buffer.
#[derive(Debug)]
pub struct Bits {
    words: Box<[u64]>,
}

impl Bits {
    /// None of `count`.
    pub fn new(count: usize) -> Bits {
        Bits { words: vec![0; count.div_ceil(64)].into_boxed_slice() }
    }

    /// 64 buffers from a multiple of 64 on.
    pub fn words(&mut self) -> &mut [u64] {
        &mut self.words
    }

    /// Not this one.
    pub fn clear(&mut self, at: usize) {
        self.words[at / 64] &= !(1 << (at % 64));
    }

    /// The first at or behind `from`.
    pub fn next(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = self.words.get(word)? & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.words.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }
}
