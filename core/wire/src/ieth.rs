//! Invalidate extended transport header (IETH): the remote key that a SEND with Invalidate invalidates (IBTA
//! volume 1, chapter 9.3).
//!
//! ```text
//!  +---------------------------------------------------------------+
//! 0|                             R_Key                             |
//!  +---------------------------------------------------------------+
//! ```

use core::fmt;

use zerocopy::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;

/// Length of the header in bytes.
pub const LEN: usize = 4;

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    rkey: U32,
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

    /// Remote key that the receiver's NIC must invalidate.
    #[inline]
    pub fn rkey(&self) -> u32 {
        self.0.rkey.get()
    }
}

/// The header as a value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Remote key that the receiver's NIC must invalidate.
    pub rkey: u32,
}

impl Repr {
    /// Converts a checked header into a value.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr { rkey: view.rkey() }
    }

    /// Writes [`LEN`] bytes at the start of `out`. Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let (place, _) = Raw::mut_from_prefix(out).expect("space for an IETH");
        *place = Raw { rkey: U32::new(self.rkey) };
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rkey={:#010x}", self.rkey)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: [u8; LEN] = [0x01, 0x02, 0x03, 0x04];
    const VALUE: Repr = Repr { rkey: 0x0102_0304 };

    #[test]
    fn literal_bytes() {
        assert_eq!(Repr::parse(&View::new(&BYTES).unwrap()), VALUE);
        let mut out = [0x5a; LEN + 1];
        VALUE.emit(&mut out);
        assert_eq!((&out[..LEN], out[LEN]), (&BYTES[..], 0x5a));
        assert_eq!(VALUE.to_string(), "rkey=0x01020304");
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
