//! Values whose bytes are determined by their number, so that a torn or foreign value is detected.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// The result of `identify` for bytes that are not a complete value. This number must not be written, so
/// every judge refuses it.
pub const TORN: u64 = u64::MAX;

/// Length of the shortest value that contains its number, in bytes.
const SHORTEST: usize = 8;

/// Fills `value` with the bytes of value number `id`: the number itself, then bytes that depend on number,
/// length and offset.
///
/// # Panics
/// If `value` has fewer than 8 bytes.
pub fn stamp(id: u64, value: &mut [u8]) {
    assert!(value.len() >= SHORTEST, "{} bytes cannot hold a value's number", value.len());
    let mut stream = SplitMix64::seed_from_u64(id ^ (value.len() as u64).rotate_left(32));
    let (head, rest) = value.split_at_mut(SHORTEST);
    head.copy_from_slice(&id.to_le_bytes());
    stream.fill_bytes(rest);
}

/// Returns the number of a stamped value, or `TORN` if the bytes are not a complete value.
pub fn identify(value: &[u8]) -> u64 {
    let Some(head) = value.first_chunk::<SHORTEST>() else { return TORN };
    let id = u64::from_le_bytes(*head);
    let mut whole = vec![0; value.len()];
    stamp(id, &mut whole);
    if whole == value { id } else { TORN }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamped(id: u64, length: usize) -> Vec<u8> {
        let mut value = vec![0; length];
        stamp(id, &mut value);
        value
    }

    #[test]
    fn a_value_is_known_by_its_bytes_at_any_length() {
        for length in [8, 9, 15, 16, 17, 4096, 70_001] {
            assert_eq!(identify(&stamped(42, length)), 42, "{length} bytes");
        }
        assert_eq!(identify(&[]), TORN);
        assert_eq!(identify(&[1; 7]), TORN);
    }

    #[test]
    fn a_mixture_of_two_values_is_torn_wherever_the_seam_lies() {
        let old = stamped(1, 256);
        let new = stamped(2, 256);
        for seam in 1..256 {
            let torn = [&new[..seam], &old[seam..]].concat();
            assert_eq!(identify(&torn), TORN, "seam at {seam}");
        }
    }

    #[test]
    fn a_value_cut_short_is_torn() {
        let value = stamped(3, 512);
        assert_eq!(identify(&value[..511]), TORN);
        assert_eq!(identify(&value[..8]), 3, "8 bytes are their number and no more");
    }
}
