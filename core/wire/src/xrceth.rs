//! XRC extended transport header (XRCETH): the shared receive queue of an XRC request (IBTA volume 1, annex
//! A14).
//!
//! ```text
//!  +---------------+-----------------------------------------------+
//! 0|   reserved    |             shared receive queue              |
//!  +---------------+-----------------------------------------------+
//! ```
//!
//! The reserved byte is sent as zero and ignored on receipt.

use core::fmt;

use zerocopy::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Qpn, WireError};

/// Length of the header in bytes.
pub const LEN: usize = 4;

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    /// Reserved byte, then 24 bits of queue number.
    srq: U32,
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

    /// Number of the responder's shared receive queue.
    #[inline]
    pub fn srq(&self) -> Qpn {
        Qpn::new(self.0.srq.get())
    }
}

/// The header as a value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Number of the responder's shared receive queue.
    pub srq: Qpn,
}

impl Repr {
    /// Converts a checked header into a value.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr { srq: view.srq() }
    }

    /// Writes [`LEN`] bytes at the start of `out`. Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let (place, _) = Raw::mut_from_prefix(out).expect("space for an XRCETH");
        *place = Raw { srq: U32::new(self.srq.get()) };
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "srq={}", self.srq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: [u8; LEN] = [0x00, 0x12, 0x34, 0x56];
    const VALUE: Repr = Repr { srq: Qpn::new(0x12_3456) };

    #[test]
    fn literal_bytes() {
        assert_eq!(Repr::parse(&View::new(&BYTES).unwrap()), VALUE);
        let mut out = [0x5a; LEN + 1];
        VALUE.emit(&mut out);
        assert_eq!((&out[..LEN], out[LEN]), (&BYTES[..], 0x5a));
        assert_eq!(VALUE.to_string(), "srq=0x123456");
    }

    #[test]
    fn truncation_is_an_error() {
        for len in 0..LEN {
            assert_eq!(View::new(&BYTES[..len]).unwrap_err(), WireError::Truncated);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_round_trip_but_for_the_reserved_one(mut bytes: [u8; LEN]) {
            let mut out = [0; LEN];
            Repr::parse(&View::new(&bytes).unwrap()).emit(&mut out);
            bytes[0] = 0;
            prop_assert_eq!(out, bytes);
        }
    }
}
