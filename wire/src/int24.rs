//! The 24-bit big-endian integer of which BTH, AETH, DETH and XRCETH are made.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Largest value of 24 bits.
pub(crate) const MASK: u32 = 0x00ff_ffff;

/// Three bytes on the wire, most significant first.
#[derive(Copy, Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub(crate) struct U24([u8; 3]);

impl U24 {
    /// The low 24 bits of `value`.
    #[inline]
    pub(crate) const fn new(value: u32) -> U24 {
        let [_, a, b, c] = value.to_be_bytes();
        U24([a, b, c])
    }

    #[inline]
    pub(crate) const fn get(self) -> u32 {
        let [a, b, c] = self.0;
        u32::from_be_bytes([0, a, b, c])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_big_endian_and_masks() {
        assert_eq!(U24::new(0xff12_3456).as_bytes(), [0x12, 0x34, 0x56]);
        assert_eq!(U24([0x12, 0x34, 0x56]).get(), 0x0012_3456);
    }
}
