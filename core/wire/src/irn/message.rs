//! IRN message header: the receive work request that a SEND or a WRITE with immediate data uses at the
//! responder, and the offset of the packet's payload in the message (IRN paper, §5).
//!
//! ```text
//!  +---------------+-----------------------------------------------+
//! 0|       0       |                    WQE_SN                     |
//!  +---------------+-----------------------------------------------+
//! 4|                            Offset                             |
//!  +---------------------------------------------------------------+
//! ```

use core::fmt;

use zerocopy::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;

/// Length of the header in bytes.
pub const LEN: usize = 8;

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    number: U32,
    offset: U32,
}
const _: () = assert!(size_of::<Raw>() == LEN);

const NUMBER: u32 = 0x00ff_ffff;

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

    /// Number of the receive work request, counted from the first of the connection, modulo 2^24.
    #[inline]
    pub fn number(&self) -> u32 {
        self.0.number.get() & NUMBER
    }

    /// Offset of the payload in the message, in bytes.
    #[inline]
    pub fn offset(&self) -> u32 {
        self.0.offset.get()
    }
}

/// The header as a value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Number of the receive work request, counted from the first of the connection, modulo 2^24; `emit`
    /// keeps 24 bits.
    pub number: u32,
    /// Offset of the payload in the message, in bytes.
    pub offset: u32,
}

impl Repr {
    /// Converts a checked header into a value.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr { number: view.number(), offset: view.offset() }
    }

    /// Writes [`LEN`] bytes at the start of `out`. Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let (place, _) = Raw::mut_from_prefix(out).expect("space for an IRN message header");
        *place = Raw { number: U32::new(self.number & NUMBER), offset: U32::new(self.offset) };
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wqe={} offset={}", self.number, self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: [u8; LEN] = [0, 0x01, 0x02, 0x03, 0x00, 0x00, 0x10, 0x00];
    const VALUE: Repr = Repr { number: 0x01_0203, offset: 4096 };

    #[test]
    fn literal_bytes() {
        assert_eq!(Repr::parse(&View::new(&BYTES).unwrap()), VALUE);
        let mut out = [0x5a; LEN + 1];
        VALUE.emit(&mut out);
        assert_eq!((&out[..LEN], out[LEN]), (&BYTES[..], 0x5a));
        assert_eq!(VALUE.to_string(), "wqe=66051 offset=4096");
    }

    #[test]
    fn truncation_is_an_error() {
        for len in 0..LEN {
            assert_eq!(View::new(&BYTES[..len]).unwrap_err(), WireError::Truncated);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_round_trip_but_for_the_reserved_byte(bytes: [u8; LEN]) {
            let mut out = [0; LEN];
            Repr::parse(&View::new(&bytes).unwrap()).emit(&mut out);
            prop_assert_eq!(&out[1..], &bytes[1..]);
            prop_assert_eq!(out[0], 0);
        }
    }
}
