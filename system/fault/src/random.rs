//! Pseudorandom numbers that depend only on a seed, on every machine and in every version.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A random number generator (SplitMix64), which has 64 bits of state and accepts any seed.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    /// Returns a generator with this seed.
    pub fn new(seed: u64) -> Random {
        Random(SplitMix64::from_seed(seed.to_le_bytes()))
    }

    /// Returns another generator whose numbers are independent of the following numbers of this one.
    pub fn split(&mut self) -> Random {
        Random::new(self.bits() ^ 0x6a09_e667_f3bc_c909)
    }

    /// Returns 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number less than `bound`, or 0 if `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number from `low` to `high`, both inclusive.
    #[inline]
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// Returns true with probability `p`.
    #[inline]
    pub fn chance(&mut self, p: f64) -> bool {
        // 53 bits are the precision of an `f64`.
        p > 0.0 && ((self.bits() >> 11) as f64) < p * 9_007_199_254_740_992.0
    }

    /// Returns one of `choices`, which must not be empty.
    #[inline]
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Fills `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let bits = self.bits().to_le_bytes();
            chunk.copy_from_slice(&bits[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_seed_never_change() {
        // The first outputs of SplitMix64 for seed 0, as published by its authors.
        let mut random = Random::new(0);
        assert_eq!(random.bits(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.bits(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn chances_and_bounds_hold() {
        let mut random = Random::new(7);
        let hits = (0..100_000).filter(|_| random.chance(0.1)).count();
        assert!((9_500..10_500).contains(&hits), "{hits} of 100 000 at 10 %");
        assert!((0..1000).all(|_| !random.chance(0.0) && random.chance(1.0)));
        let mut seen = [0u32; 5];
        (0..5000).for_each(|_| seen[random.below(5) as usize] += 1);
        assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
        assert_eq!(random.below(0), 0);
        assert_eq!(random.between(3, 3), 3);
    }
}
