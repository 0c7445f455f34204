//! The fields that a 1RMA solicit adds to the [header](super::header): the slot for the data, and the time
//! for which the server waits (1RMA paper, Figure 7).
//!
//! ```text
//!  +-------------------------------+-------------------------------+
//!  0|        server's slot         |  payload per message at most  |
//!  +-------------------------------+-------------------------------+
//!  4|                server's timeout in nanoseconds               |
//!  +---------------------------------------------------------------+
//! ```

use core::fmt;

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;

/// Length of the fields in bytes.
pub const LEN: usize = 8;

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    server_slot: U16,
    max_payload: U16,
    timeout: U32,
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

    /// The server's slot for the operation, to which the data must be sent.
    #[inline]
    pub fn server_slot(&self) -> u16 {
        self.0.server_slot.get()
    }

    /// Maximum payload per message that the server accepts, in bytes.
    #[inline]
    pub fn max_payload(&self) -> u16 {
        self.0.max_payload.get()
    }

    /// Time for which the server waits for the data, in nanoseconds.
    #[inline]
    pub fn timeout(&self) -> u32 {
        self.0.timeout.get()
    }
}

/// The fields as a value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The server's slot for the operation, to which the data must be sent.
    pub server_slot: u16,
    /// Maximum payload per message that the server accepts, in bytes.
    pub max_payload: u16,
    /// Time for which the server waits for the data, in nanoseconds.
    pub timeout: u32,
}

impl Repr {
    /// Converts the checked fields into a value.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr { server_slot: view.server_slot(), max_payload: view.max_payload(), timeout: view.timeout() }
    }

    /// Writes [`LEN`] bytes at the start of `out`. Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let (place, _) = Raw::mut_from_prefix(out).expect("space for the fields of a solicit");
        *place = Raw {
            server_slot: U16::new(self.server_slot),
            max_payload: U16::new(self.max_payload),
            timeout: U32::new(self.timeout),
        };
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Repr { server_slot, max_payload, timeout } = self;
        write!(f, "server_slot={server_slot} max_payload={max_payload} timeout={timeout}ns")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: [u8; LEN] = [0x01, 0x02, 0x04, 0x00, 0x00, 0x00, 0x4e, 0x20];
    const VALUE: Repr = Repr { server_slot: 0x0102, max_payload: 1024, timeout: 20_000 };

    #[test]
    fn literal_bytes() {
        assert_eq!(Repr::parse(&View::new(&BYTES).unwrap()), VALUE);
        let mut out = [0x5a; LEN + 1];
        VALUE.emit(&mut out);
        assert_eq!((&out[..LEN], out[LEN]), (&BYTES[..], 0x5a));
        assert_eq!(VALUE.to_string(), "server_slot=258 max_payload=1024 timeout=20000ns");
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
