//! The hash of a key. Client and server must compute the same value, so the function never changes.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Returns the XXH3 hash (64 bits) of the key with the table's seed.
#[inline]
pub fn hash_key(seed: u64, key: &[u8]) -> u64 {
    xxh3_64_with_seed(key, seed)
}

/// Maps a hash to `0..n` by its high bits: `hash * n / 2^64`.
#[inline(always)]
pub(crate) fn reduce(hash: u64, n: u64) -> u64 {
    ((u128::from(hash) * u128::from(n)) >> 64) as u64
}

/// Multipliers of the three hash functions of a cuckoo table. They are odd and far apart: the fractional
/// parts of the golden ratio and of the square roots of 2 and 3, made odd.
const CHOICES: [u64; 3] = [0x9e37_79b9_7f4a_7c15, 0x6a09_e667_f3bc_c909, 0xbb67_ae85_84ca_a73b];

/// Returns choice `way` (0 to 2) of the three slots among `n` in which a cuckoo table may hold a key; two
/// choices may coincide. Each multiplier mixes the hash once, the high half is folded onto the low one, and
/// a second product spreads it.
#[inline(always)]
pub(crate) fn choice(hash: u64, way: usize, n: u64) -> u64 {
    let mixed = hash.wrapping_mul(CHOICES[way]);
    reduce((mixed ^ mixed >> 32).wrapping_mul(CHOICES[0]), n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // Output of the reference implementation (`xxhsum -H3`) for the empty input and seed 0.
        assert_eq!(hash_key(0, b""), 0x2d06_8005_38d3_94c2);
        assert_ne!(hash_key(0, b"user1"), hash_key(1, b"user1"));
    }

    #[test]
    fn choices_spread_evenly_and_apart() {
        const N: u64 = 1000;
        let mut counts = [[0u32; N as usize]; 3];
        let mut same = 0;
        for number in 0..100_000u64 {
            let hash = hash_key(7, &number.to_le_bytes());
            let places: [u64; 3] = core::array::from_fn(|way| choice(hash, way, N));
            for (way, &place) in places.iter().enumerate() {
                counts[way][place as usize] += 1;
            }
            same += u32::from(places[0] == places[1]) + u32::from(places[1] == places[2]);
        }
        // The expectation is 100 per slot with standard deviation 10; a deviation by six of these is not
        // chance.
        assert!(counts.iter().flatten().all(|count| (40..160).contains(count)));
        // Two independent choices coincide once in N, and there are two comparisons per key.
        assert!((100..320).contains(&same), "{same}");
    }

    #[test]
    fn reduce_covers_the_ends() {
        assert_eq!((reduce(0, 10), reduce(u64::MAX, 10), reduce(1 << 63, 10)), (0, 9, 5));
    }
}
