//! Queue pair numbers.

use core::fmt;
use serde::{Deserialize, Serialize};

/// The 24 bits of a queue pair's number.
const MASK: u32 = 0x00ff_ffff;

/// A queue pair number of 24 bits (IBTA volume 1, chapter 9.2), or the number of a shared receive queue in
/// an XRCETH.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(from = "u32", into = "u32")]
pub struct Qpn(u32);

impl From<u32> for Qpn {
    fn from(value: u32) -> Qpn {
        Qpn::new(value)
    }
}

impl From<Qpn> for u32 {
    fn from(qpn: Qpn) -> u32 {
        qpn.get()
    }
}

impl Qpn {
    /// Queue pair of subnet management.
    pub const SMI: Qpn = Qpn(0);
    /// Queue pair of general services, used by connection managers.
    pub const GSI: Qpn = Qpn(1);

    /// Shift of the upper seven bits, which are the QPN range of a program that shares its address.
    pub const RANGE_SHIFT: u32 = 17;

    /// Returns the number in the low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Qpn {
        Qpn(value & MASK)
    }

    /// Returns the number, 0 to 2^24 - 1.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the QPN range, 0 to 127, which identifies the program if several share an address.
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
