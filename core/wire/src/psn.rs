//! Packet sequence numbers: a circle of 2^24, which has distances but no order.

use core::fmt;

/// The 24 bits of a PSN.
const MASK: u32 = 0x00ff_ffff;

/// A packet sequence number: 24 bits, circular (IBTA volume 1, chapter 9.7.1).
///
/// There is deliberately no `Ord` and no `-`: on a circle `a < b` is not transitive. Ask for the distance
/// from a number known to be earlier, or which of two is before the other within half the circle.
///
/// ```compile_fail,E0369
/// # use remora_wire::Psn;
/// assert!(Psn::new(1) < Psn::new(2));
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Default)]
pub struct Psn(u32);

impl Psn {
    /// How many sequence numbers there are: 2^24.
    pub const COUNT: u32 = 1 << 24;
    /// Half the circle, 2^23: the window within which "before" has a meaning.
    pub const HALF: u32 = 1 << 23;

    /// The low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Psn {
        Psn(value & MASK)
    }

    /// The number, 0 to 2^24 - 1.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number `n` steps later, round the circle.
    #[inline]
    pub const fn add(self, n: u32) -> Psn {
        Psn(self.0.wrapping_add(n) & MASK)
    }

    /// The number `n` steps earlier, round the circle.
    #[inline]
    pub const fn back(self, n: u32) -> Psn {
        Psn(self.0.wrapping_sub(n) & MASK)
    }

    /// The next number.
    #[inline]
    pub const fn next(self) -> Psn {
        self.add(1)
    }

    /// Steps forward from `earlier` to `self`: 0 to 2^24 - 1.
    #[inline]
    pub const fn distance_from(self, earlier: Psn) -> u32 {
        self.0.wrapping_sub(earlier.0) & MASK
    }

    /// Is `self` before `other`, that is at most half the circle behind it? No number is before itself; of
    /// two numbers exactly opposite each other, each is before the other.
    #[inline]
    pub const fn is_before(self, other: Psn) -> bool {
        let ahead = other.distance_from(self);
        ahead != 0 && ahead <= Psn::HALF
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
        assert_eq!(Psn::new(2).distance_from(Psn::new(0x00ff_fffe)), 4);
        assert_eq!(Psn::new(5).add(u32::MAX), Psn::new(4));
    }

    #[test]
    fn before_means_within_half_the_circle() {
        let a = Psn::new(0x00ff_fff0);
        assert!(a.is_before(Psn::new(3)), "across the wrap");
        assert!(!Psn::new(3).is_before(a));
        assert!(!a.is_before(a));
        assert!(Psn::new(0).is_before(Psn::new(Psn::HALF)));
        assert!(Psn::new(Psn::HALF).is_before(Psn::new(0)), "opposite points precede each other");
        assert!(!Psn::new(0).is_before(Psn::new(Psn::HALF + 1)));
    }

    proptest! {
        #[test]
        fn add_and_distance_are_inverse(start: u32, n in 0..Psn::COUNT) {
            let (a, b) = (Psn::new(start), Psn::new(start).add(n));
            prop_assert_eq!(b.distance_from(a), n);
            prop_assert_eq!(b.back(n), a);
            prop_assert_eq!(a.is_before(b), (1..=Psn::HALF).contains(&n));
        }
    }
}
