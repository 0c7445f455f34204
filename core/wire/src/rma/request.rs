//! The fields that a 1RMA request adds to the [header](super::header): identity of the initiator and maximum
//! payload.
//!
//! ```text
//!  +---------------------------------------------------------------+
//!  0|                     PID of the initiator                     |
//!  +---------------------------------------------------------------+
//!  4|                         incarnation                          |
//!  +-------------------------------+-------------------------------+
//!  8|  payload per message at most  |           0                   |
//!  +-------------------------------+-------------------------------+
//! ```
//!
//! The IP header has the initiator's address. Address, PID and incarnation are the identity from which the
//! initiator's key is derived.

use core::fmt;

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;

/// Length of the fields in bytes.
pub const LEN: usize = 12;

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    pid: U32,
    incarnation: U32,
    max_payload: U16,
    reserved: U16,
}
const _: () = assert!(size_of::<Raw>() == LEN);

/// The borrowed fields, whose length has been checked.
#[derive(Copy, Clone, Debug)]
pub struct View<'a>(&'a Raw);

impl<'a> View<'a> {
    /// Returns a view of the fields at the start of `bytes`, or [`WireError::Truncated`] if `bytes` is too
    /// short.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        Raw::ref_from_prefix(bytes).map(|(raw, _)| View(raw)).map_err(|_| WireError::Truncated)
    }

    /// Process id of the initiator, as its NIC knows it.
    #[inline]
    pub fn pid(&self) -> u32 {
        self.0.pid.get()
    }

    /// Random number chosen when the NIC started or the program attached to it.
    #[inline]
    pub fn incarnation(&self) -> u32 {
        self.0.incarnation.get()
    }

    /// Maximum payload per message that the initiator accepts or sends, in bytes.
    #[inline]
    pub fn max_payload(&self) -> u16 {
        self.0.max_payload.get()
    }
}

/// The fields as a value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Process id of the initiator, as its NIC knows it.
    pub pid: u32,
    /// Random number chosen when the NIC started or the program attached to it.
    pub incarnation: u32,
    /// Maximum payload per message that the initiator accepts or sends, in bytes.
    pub max_payload: u16,
}

impl Repr {
    /// Converts the checked fields into a value.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr { pid: view.pid(), incarnation: view.incarnation(), max_payload: view.max_payload() }
    }

    /// Writes [`LEN`] bytes at the start of `out`. Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let (place, _) = Raw::mut_from_prefix(out).expect("space for the fields of a 1RMA request");
        *place = Raw {
            pid: U32::new(self.pid),
            incarnation: U32::new(self.incarnation),
            max_payload: U16::new(self.max_payload),
            reserved: U16::ZERO,
        };
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid={} incarnation={:08x} max_payload={}", self.pid, self.incarnation, self.max_payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: [u8; LEN] = [0, 0, 0x30, 0x39, 0xca, 0xfe, 0xba, 0xbe, 0x10, 0, 0, 0];
    const VALUE: Repr = Repr { pid: 12345, incarnation: 0xcafe_babe, max_payload: 4096 };

    #[test]
    fn literal_bytes() {
        assert_eq!(Repr::parse(&View::new(&BYTES).unwrap()), VALUE);
        let mut out = [0x5a; LEN + 1];
        VALUE.emit(&mut out);
        assert_eq!((&out[..LEN], out[LEN]), (&BYTES[..], 0x5a));
        assert_eq!(VALUE.to_string(), "pid=12345 incarnation=cafebabe max_payload=4096");
    }

    #[test]
    fn truncation_is_an_error() {
        for len in 0..LEN {
            assert_eq!(View::new(&BYTES[..len]).unwrap_err(), WireError::Truncated);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_round_trip_but_for_the_reserved_ones(bytes: [u8; LEN]) {
            let mut out = [0; LEN];
            Repr::parse(&View::new(&bytes).unwrap()).emit(&mut out);
            prop_assert_eq!(&out[..10], &bytes[..10]);
            prop_assert_eq!(&out[10..], &[0, 0]);
        }
    }
}
