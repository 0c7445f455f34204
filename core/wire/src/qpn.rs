//! Queue pair numbers.

use core::fmt;

/// The 24 bits of a queue pair's number.
const MASK: u32 = 0x00ff_ffff;

/// A queue pair number: 24 bits (IBTA volume 1, chapter 9.2). Also names a shared receive queue in XRCETH.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Qpn(u32);

impl Qpn {
    /// The subnet management QP.
    pub const SMI: Qpn = Qpn(0);
    /// The general services QP, where connection managers talk.
    pub const GSI: Qpn = Qpn(1);

    /// Bits below the upper seven, which name the QPN range of a program that shares its address.
    pub const RANGE_SHIFT: u32 = 17;

    /// The low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Qpn {
        Qpn(value & MASK)
    }

    /// The number, 0 to 2^24 - 1.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The QPN range, 0 to 127: whose it is where programs share an address.
    #[inline]
    pub const fn range(self) -> u8 {
        (self.0 >> Qpn::RANGE_SHIFT) as u8
    }
}

impl fmt::Debug for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Qpn({:#08x})", self.0)
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_24_bits() {
        assert_eq!(Qpn::new(0xab00_0011).get(), 0x11);
        assert_eq!(Qpn::new(0x11).to_string(), "0x000011");
    }
}
