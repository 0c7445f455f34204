//! Packet sequence numbers (PSNs), which are circular: they have no order.

use core::fmt;
use serde::{Deserialize, Serialize};

/// The 24 bits of a PSN.
const MASK: u32 = 0x00ff_ffff;

/// A packet sequence number: 24 bits, circular (IBTA volume 1, chapter 9.7.1).
///
/// The type has no `Ord` and no `-`, because `a < b` is not transitive on a circle.
///
/// ```compile_fail,E0369
/// # use remora_wire::Psn;
/// assert!(Psn::new(1) < Psn::new(2));
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "u32", into = "u32")]
pub struct Psn(u32);

impl From<u32> for Psn {
    fn from(value: u32) -> Psn {
        Psn::new(value)
    }
}

impl From<Psn> for u32 {
    fn from(psn: Psn) -> u32 {
        psn.get()
    }
}

impl Psn {
    /// Number of sequence numbers, 2^24.
    pub const COUNT: u32 = 1 << 24;

    /// Returns the number in the low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Psn {
        Psn(value & MASK)
    }

    /// Returns the number, 0 to 2^24 - 1.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the number `n` steps later on the circle.
    #[inline]
    pub const fn add(self, n: u32) -> Psn {
        Psn(self.0.wrapping_add(n) & MASK)
    }

    /// Returns the number `n` steps earlier on the circle.
    #[inline]
    pub const fn back(self, n: u32) -> Psn {
        Psn(self.0.wrapping_sub(n) & MASK)
    }

    /// Returns the next number.
    #[inline]
    pub const fn next(self) -> Psn {
        self.add(1)
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Psn({:#08x})", self.0)
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn wraps_at_24_bits() {
        assert_eq!(Psn::new(0x0100_0001), Psn::new(1));
        assert_eq!(Psn::new(0x00ff_ffff).next(), Psn::new(0));
        assert_eq!(Psn::new(0).back(1), Psn::new(0x00ff_ffff));
        assert_eq!(Psn::new(5).add(u32::MAX), Psn::new(4));
    }

    proptest! {
        #[test]
        fn back_undoes_add(start: u32, n in 0..Psn::COUNT) {
            let a = Psn::new(start);
            let b = Psn::new(start).add(n);
            prop_assert_eq!(b.back(n), a);
        }
    }
}
