//! Numbers of up to 32 bytes: four limbs, the least significant first.

use remora_wire::prism::operands::Number;

/// Both bit by bit.
pub(crate) fn and(a: &Number, b: &Number) -> Number {
    std::array::from_fn(|index| a[index] & b[index])
}

/// `new` where `mask` has ones, else `old`.
pub(crate) fn blend(old: &Number, new: &Number, mask: &Number) -> Number {
    std::array::from_fn(|index| old[index] & !mask[index] | new[index] & mask[index])
}

/// The sum within each field: nothing is carried out of a bit that `tops` has. What is carried out of the
/// last limb is lost, and so is what is carried out of a smaller number's size once its limbs beyond are
/// masked.
pub(crate) fn add(a: &Number, b: &Number, tops: &Number) -> Number {
    let mut carry = false;
    std::array::from_fn(|index| {
        let low_a = a[index] & !tops[index];
        let low_b = b[index] & !tops[index];
        let (sum, first) = low_a.overflowing_add(low_b);
        let (sum, second) = sum.overflowing_add(u64::from(carry));
        carry = first || second;
        sum ^ (a[index] ^ b[index]) & tops[index]
    })
}

/// Returns the lowest `size` bytes of a number.
pub(crate) fn cut(number: &Number, size: usize) -> Number {
    std::array::from_fn(|index| if index * 8 < size { number[index] } else { 0 })
}

/// Returns the number in `bytes`, little-endian as in memory.
pub(crate) fn from_memory(bytes: &[u8; 32]) -> Number {
    let (words, _) = bytes.as_chunks();
    std::array::from_fn(|index| u64::from_le_bytes(words[index]))
}

/// Returns the little-endian bytes of a number, as in memory.
pub(crate) fn to_memory(number: &Number) -> [u8; 32] {
    let mut bytes = [0; 32];
    let (words, _) = bytes.as_chunks_mut();
    words.iter_mut().zip(number).for_each(|(word, limb)| *word = limb.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_fields_the_sum_carries_through_all_limbs() {
        let ones = [u64::MAX, u64::MAX, 0, 0];
        assert_eq!(add(&ones, &[1, 0, 0, 0], &[0; 4]), [0, 0, 1, 0]);
        assert_eq!(add(&[u64::MAX; 4], &[1, 0, 0, 0], &[0; 4]), [0; 4]);
        assert_eq!(cut(&add(&[u64::MAX, 0, 0, 0], &[2, 0, 0, 0], &[0; 4]), 8), [1, 0, 0, 0]);
    }

    #[test]
    fn nothing_is_carried_out_of_a_field() {
        // Two fields of 32 bits, and a third across two limbs.
        let tops = [0x8000_0000_8000_0000, 0x8000_0000, 0, 0];
        let sum = add(&[0xffff_ffff_ffff_ffff, 0xffff_ffff, 5, 0], &[1 | 1 << 32, 1, 1, 0], &tops);
        assert_eq!(sum, [0, 0, 6, 0]);
        // The highest bit of a field is part of it.
        assert_eq!(add(&[0x7fff_ffff, 0, 0, 0], &[1, 0, 0, 0], &tops), [0x8000_0000, 0, 0, 0]);
    }

    #[test]
    fn masks_choose_bits() {
        assert_eq!(blend(&[0xf0f0, 1, 2, 3], &[0x0f0f, 9, 9, 9], &[0xff, 0, u64::MAX, 0]), [0xf00f, 1, 9, 3]);
        assert_eq!(and(&[6, 5, 4, 3], &[3, 1, 4, 0]), [2, 1, 4, 0]);
        let bytes = std::array::from_fn(|index| index as u8);
        assert_eq!(from_memory(&bytes)[1], 0x0f0e_0d0c_0b0a_0908);
        assert_eq!(to_memory(&from_memory(&bytes)), bytes);
    }
}
