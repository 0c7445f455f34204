//! A sliding window of flags over sequence numbers, one bit per packet (the bitmaps of the IRN paper's §6).
//!
//! The flag of a sequence number is stored at that number modulo the size, so that moving the window shifts
//! nothing. The owner must keep all numbers within one window and clear the flags that the window leaves
//! behind.

use crate::rc::Seq;

/// Flags of a window of consecutive sequence numbers; the size is a power of two.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bitmap {
    words: Box<[u64]>,
    ones: u32,
}

/// Number of words up to which each call of `check` counts the flags.
const WORDS_CHECKED: u64 = 8;

impl Bitmap {
    /// Smallest and largest size. The largest is a small part of the 24-bit PSN circle.
    pub const BOUNDS: (u32, u32) = (64, 1 << 16);

    /// Returns a bitmap without flags for `size` numbers, rounded up to a power of two within
    /// [`Bitmap::BOUNDS`].
    pub fn new(size: u32) -> Bitmap {
        let size = size.clamp(Self::BOUNDS.0, Self::BOUNDS.1).next_power_of_two();
        Bitmap { words: vec![0; size as usize / 64].into_boxed_slice(), ones: 0 }
    }

    /// Returns the number of flags.
    #[inline]
    pub fn size(&self) -> u64 {
        self.words.len() as u64 * 64
    }

    /// Returns the number of flags that are set.
    #[inline]
    pub fn ones(&self) -> u32 {
        self.ones
    }

    #[inline]
    fn place(&self, seq: Seq) -> (usize, u64) {
        ((seq / 64) as usize & (self.words.len() - 1), 1 << (seq % 64))
    }

    /// Returns the flag of `seq`.
    #[inline]
    pub fn get(&self, seq: Seq) -> bool {
        let (word, bit) = self.place(seq);
        self.words[word] & bit != 0
    }

    /// Sets the flag of `seq`. Returns false if the flag was set before.
    #[inline]
    pub fn set(&mut self, seq: Seq) -> bool {
        let (word, bit) = self.place(seq);
        let new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        self.ones += u32::from(new);
        new
    }

    /// Clears the flag of `seq`. Returns false if the flag was clear before.
    #[inline]
    pub fn clear(&mut self, seq: Seq) -> bool {
        let (word, bit) = self.place(seq);
        let was = self.words[word] & bit != 0;
        self.words[word] &= !bit;
        self.ones -= u32::from(was);
        was
    }

    /// Clears the flags of the numbers `start..end`.
    #[inline]
    pub fn clear_range(&mut self, start: Seq, end: Seq) {
        if self.ones == 0 {
            return;
        }
        // A range longer than the window would visit the same words repeatedly.
        let end = end.min(start.saturating_add(self.size()));
        let mut seq = start;
        while seq < end {
            let (word, _) = self.place(seq);
            let next = (seq / 64 * 64 + 64).min(end);
            let mask = mask(seq % 64, next - seq);
            self.ones -= (self.words[word] & mask).count_ones();
            self.words[word] &= !mask;
            seq = next;
        }
    }

    /// Returns the first number of `start..end` whose flag equals `value`.
    #[inline]
    pub fn find(&self, value: bool, start: Seq, end: Seq) -> Option<Seq> {
        let mut seq = start;
        while seq < end {
            let (word, _) = self.place(seq);
            let bits = if value { self.words[word] } else { !self.words[word] } >> (seq % 64);
            if bits != 0 {
                let seq = seq + u64::from(bits.trailing_zeros());
                return (seq < end).then_some(seq);
            }
            seq = seq / 64 * 64 + 64;
        }
        None
    }

    /// Asserts that the count of flags is correct and that only numbers of `start..end` have flags. A bitmap
    /// of many words is checked only for some values of `start`, to bound the average cost.
    pub fn check(&self, start: Seq, end: Seq) {
        let words = self.words.len() as u64;
        if words > WORDS_CHECKED && !start.is_multiple_of(words) {
            return;
        }
        let ones: u32 = self.words.iter().map(|word| word.count_ones()).sum();
        assert_eq!(self.ones, ones, "the count of a bitmap is the number of its flags");
        let within = self.count_range(start, end.min(start + self.size()));
        assert_eq!(ones, within, "flags are of numbers within the window {start}..{end}");
    }

    /// Returns the number of set flags in `start..end`.
    fn count_range(&self, start: Seq, end: Seq) -> u32 {
        let mut ones = 0;
        let mut seq = start;
        while seq < end {
            let (word, _) = self.place(seq);
            let next = (seq / 64 * 64 + 64).min(end);
            ones += (self.words[word] & mask(seq % 64, next - seq)).count_ones();
            seq = next;
        }
        ones
    }

    /// Returns the bytes that the flags occupy.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}

/// Returns `len` one bits starting at bit `shift`; `shift + len` is at most 64.
fn mask(shift: u64, len: u64) -> u64 {
    if len == 64 { u64::MAX } else { ((1 << len) - 1) << shift }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_fault::Random;
    use std::collections::BTreeSet;

    #[test]
    fn random_flags_agree_with_a_set_while_the_window_moves() {
        for size in [1, 64, 100, 128, 512] {
            let mut random = Random::new(u64::from(size));
            let mut map = Bitmap::new(size);
            let mut base = 1 << 24;
            let mut model = BTreeSet::new();
            for _ in 0..20_000 {
                let seq = base + random.below(map.size());
                match random.below(5) {
                    0 | 1 => assert_eq!(map.set(seq), model.insert(seq)),
                    2 => assert_eq!(map.clear(seq), model.remove(&seq)),
                    3 => {
                        let end = (base + random.below(map.size() / 8 + 1)).max(base);
                        map.clear_range(base, end);
                        model = model.split_off(&end);
                        base = end;
                    }
                    _ => {
                        let end = seq + random.below(base + map.size() - seq + 1);
                        assert_eq!(map.find(true, seq, end), model.range(seq..end).next().copied());
                        let clear = (seq..end).find(|seq| !model.contains(seq));
                        assert_eq!(map.find(false, seq, end), clear);
                    }
                }
                assert_eq!((map.get(seq), map.ones() as usize), (model.contains(&seq), model.len()));
            }
        }
    }

    #[test]
    fn the_size_is_a_power_of_two_within_its_bounds() {
        for (asked, got) in [(0, 64), (64, 64), (65, 128), (110, 128), (128, 128), (129, 256)] {
            assert_eq!(Bitmap::new(asked).size(), got);
        }
        assert_eq!(Bitmap::new(u32::MAX).size(), u64::from(Bitmap::BOUNDS.1));
        assert_eq!(Bitmap::new(128).bytes(), 16);
    }

    #[test]
    #[should_panic(expected = "flags are of numbers within the window 100..110")]
    fn the_check_sees_a_flag_outside_the_window() {
        let mut map = Bitmap::new(128);
        map.set(105);
        map.check(100, 110);
        map.set(111);
        map.check(100, 110);
    }

    #[test]
    #[should_panic(expected = "the count of a bitmap is the number of its flags")]
    fn the_check_sees_a_wrong_count() {
        let mut map = Bitmap::new(128);
        map.set(105);
        map.ones += 1;
        map.check(100, 110);
    }

    #[test]
    fn clearing_more_than_a_window_clears_all_of_it() {
        let mut map = Bitmap::new(64);
        (0..64).for_each(|seq| assert!(map.set(1000 + seq)));
        map.clear_range(5, u64::MAX);
        assert_eq!((map.ones(), map.find(true, 0, 64)), (0, None));
    }
}
