//! Atomic extended transport header (AtomicETH): target and operands of compare-and-swap and fetch-and-add
//! (IBTA volume 1, chapter 9.3).
//!
//! ```text
//!   +---------------------------------------------------------------+
//!  0|                                                               |
//!   +                        virtual address                        +
//!  4|                                                               |
//!   +---------------------------------------------------------------+
//!  8|                             R_Key                             |
//!   +---------------------------------------------------------------+
//! 12|                                                               |
//!   +                          swap or add                          +
//! 16|                                                               |
//!   +---------------------------------------------------------------+
//! 20|                                                               |
//!   +                            compare                            +
//! 24|                                                               |
//!   +---------------------------------------------------------------+
//! ```

use core::fmt;

use zerocopy::network_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;

/// Length of the header in bytes.
pub const LEN: usize = 28;

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    va: U64,
    rkey: U32,
    swap_add: U64,
    compare: U64,
}
const _: () = assert!(size_of::<Raw>() == LEN);

/// A borrowed header whose length has been checked.
#[derive(Copy, Clone, Debug)]
pub struct View<'a>(&'a Raw);

impl<'a> View<'a> {
    /// Returns a view of the header at the start of `bytes`, or [`WireError::Truncated`] if `bytes` is too
    /// short.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        Raw::ref_from_prefix(bytes).map(|(raw, _)| View(raw)).map_err(|_| WireError::Truncated)
    }

    /// Address of the 8-byte target, which must be aligned to 8 bytes.
    #[inline]
    pub fn va(&self) -> u64 {
        self.0.va.get()
    }

    /// Remote key (R_Key) of the responder's memory.
    #[inline]
    pub fn rkey(&self) -> u32 {
        self.0.rkey.get()
    }

    /// New value of a compare-and-swap, or addend of a fetch-and-add.
    #[inline]
    pub fn swap_add(&self) -> u64 {
        self.0.swap_add.get()
    }

    /// Expected value of a compare-and-swap; ignored by a fetch-and-add.
    #[inline]
    pub fn compare(&self) -> u64 {
        self.0.compare.get()
    }
}

/// The header as a value. Operands are numbers; the responder applies them in its own byte order.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Address of the 8-byte target, which must be aligned to 8 bytes.
    pub va: u64,
    /// Remote key (R_Key) of the responder's memory.
    pub rkey: u32,
    /// New value of a compare-and-swap, or addend of a fetch-and-add.
    pub swap_add: u64,
    /// Expected value of a compare-and-swap; ignored by a fetch-and-add.
    pub compare: u64,
}

impl Repr {
    /// Converts a checked header into a value.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr { va: view.va(), rkey: view.rkey(), swap_add: view.swap_add(), compare: view.compare() }
    }

    /// Writes [`LEN`] bytes at the start of `out`. Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let (place, _) = Raw::mut_from_prefix(out).expect("space for an AtomicETH");
        *place = Raw {
            va: U64::new(self.va),
            rkey: U32::new(self.rkey),
            swap_add: U64::new(self.swap_add),
            compare: U64::new(self.compare),
        };
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "va={:#x} rkey={:#010x} swap_add={:#x} compare={:#x}",
            self.va, self.rkey, self.swap_add, self.compare
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: [u8; LEN] = [
        0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, // va
        0x11, 0x12, 0x13, 0x14, // rkey
        0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, // swap or add
        0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38, // compare
    ];
    const VALUE: Repr = Repr {
        va: 0x0102_0304_0506_0708,
        rkey: 0x1112_1314,
        swap_add: 0x2122_2324_2526_2728,
        compare: 0x3132_3334_3536_3738,
    };

    #[test]
    fn literal_bytes() {
        assert_eq!(Repr::parse(&View::new(&BYTES).unwrap()), VALUE);
        let mut out = [0x5a; LEN + 1];
        VALUE.emit(&mut out);
        assert_eq!((&out[..LEN], out[LEN]), (&BYTES[..], 0x5a));
        assert_eq!(
            VALUE.to_string(),
            "va=0x102030405060708 rkey=0x11121314 swap_add=0x2122232425262728 compare=0x3132333435363738"
        );
    }

    #[test]
    fn truncation_is_an_error() {
        for len in 0..LEN {
            assert_eq!(View::new(&BYTES[..len]).unwrap_err(), WireError::Truncated);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_round_trip(bytes: [u8; LEN]) {
            let mut out = [0; LEN];
            Repr::parse(&View::new(&bytes).unwrap()).emit(&mut out);
            prop_assert_eq!(out, bytes);
        }
    }
}
