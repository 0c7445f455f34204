//! ClassPortInfo: the capabilities of a port's communication manager (IBTA volume 1, chapters 12.7 and
//! 13.4.8.1).
//!
//! ```text
//!  +---------------+---------------+-------------------------------+
//!  0| base version 1|class version 2|        capability mask       |
//!  +---------------+---------------+-------------------+-----------+
//!  4|                capability mask 2                 | resp. time|
//!  +---------------------------------------------------+-----------+
//!  8|                redirection and traps (64): 0                 |
//!  +---------------------------------------------------------------+
//! ```
//!
//! Remora neither redirects requests nor sends traps: those bytes are sent as zero and ignored on receipt.

use core::fmt;

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;

/// Length of the attribute in bytes.
pub const LEN: usize = 72;

/// Capability: reliable connections.
pub const RELIABLE_CONNECTION: u16 = 1 << 9;
/// Capability: unreliable connections.
pub const UNRELIABLE_CONNECTION: u16 = 1 << 12;
/// Capability: SIDR.
pub const SIDR: u16 = 1 << 13;

const TIME: u8 = 0x1f;
const MASK2_SHIFT: u32 = 5;

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    base_version: u8,
    class_version: u8,
    capabilities: U16,
    capabilities2_time: U32,
    rest: [u8; 64],
}
const _: () = assert!(size_of::<Raw>() == LEN);

/// A borrowed attribute whose length has been checked.
#[derive(Copy, Clone, Debug)]
pub struct View<'a>(&'a Raw);

impl<'a> View<'a> {
    /// Returns a view of the attribute at the start of `bytes`, or [`WireError::Truncated`] if `bytes` is
    /// too short.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        Raw::ref_from_prefix(bytes).map(|(raw, _)| View(raw)).map_err(|_| WireError::Truncated)
    }

    /// MAD version.
    #[inline]
    pub fn base_version(&self) -> u8 {
        self.0.base_version
    }

    /// Version of the management class.
    #[inline]
    pub fn class_version(&self) -> u8 {
        self.0.class_version
    }

    /// Capabilities of the class, such as [`SIDR`].
    #[inline]
    pub fn capabilities(&self) -> u16 {
        self.0.capabilities.get()
    }

    /// Further capabilities, 27 bits.
    #[inline]
    pub fn capabilities2(&self) -> u32 {
        self.0.capabilities2_time.get() >> MASK2_SHIFT
    }

    /// Code of the time within which requests are answered, 5 bits.
    #[inline]
    pub fn response_time(&self) -> u8 {
        self.0.capabilities2_time.get() as u8 & TIME
    }
}

/// The attribute as a value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// MAD version.
    pub base_version: u8,
    /// Version of the management class.
    pub class_version: u8,
    /// Capabilities of the class, such as [`SIDR`].
    pub capabilities: u16,
    /// Further capabilities; `emit` keeps 27 bits.
    pub capabilities2: u32,
    /// Code of the time within which requests are answered; `emit` keeps 5 bits.
    pub response_time: u8,
}

impl Repr {
    /// Converts a checked attribute into a value.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr {
            base_version: view.base_version(),
            class_version: view.class_version(),
            capabilities: view.capabilities(),
            capabilities2: view.capabilities2(),
            response_time: view.response_time(),
        }
    }

    /// Writes [`LEN`] bytes at the start of `out`. Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let (place, _) = Raw::mut_from_prefix(out).expect("space for a ClassPortInfo");
        let time = u32::from(self.response_time & TIME);
        *place = Raw {
            base_version: self.base_version,
            class_version: self.class_version,
            capabilities: U16::new(self.capabilities),
            capabilities2_time: U32::new(self.capabilities2 << MASK2_SHIFT | time),
            rest: [0; 64],
        };
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Repr { class_version, capabilities, response_time, .. } = self;
        write!(
            f,
            "class_version={class_version} capabilities={capabilities:#06x} response_time={response_time}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: [u8; 8] = [1, 2, 0x32, 0x00, 0, 0, 0, 18];
    const VALUE: Repr = Repr {
        base_version: 1,
        class_version: 2,
        capabilities: RELIABLE_CONNECTION | UNRELIABLE_CONNECTION | SIDR,
        capabilities2: 0,
        response_time: 18,
    };

    #[test]
    fn literal_bytes() {
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&START);
        assert_eq!(Repr::parse(&View::new(&bytes).unwrap()), VALUE);
        let mut out = [0x5a; LEN + 1];
        VALUE.emit(&mut out);
        assert_eq!((&out[..LEN], out[LEN]), (&bytes[..], 0x5a));
        assert_eq!(VALUE.to_string(), "class_version=2 capabilities=0x3200 response_time=18");
    }

    #[test]
    fn truncation_is_an_error() {
        for len in 0..LEN {
            assert_eq!(View::new(&[0; LEN][..len]).unwrap_err(), WireError::Truncated);
        }
    }

    #[test]
    fn values_beyond_their_field_do_not_reach_their_neighbours() {
        let mut out = [0; LEN];
        Repr { response_time: 0xff, ..VALUE }.emit(&mut out);
        assert_eq!(out[4..8], [0, 0, 0, 0x1f]);
        Repr { capabilities2: u32::MAX, response_time: 0, ..VALUE }.emit(&mut out);
        assert_eq!(out[4..8], [0xff, 0xff, 0xff, 0xe0]);
    }

    proptest! {
        #[test]
        fn what_is_looked_at_round_trips(start: [u8; 8], rest: u8) {
            let mut bytes = [rest; LEN];
            bytes[..8].copy_from_slice(&start);
            let mut out = [0x5a; LEN];
            Repr::parse(&View::new(&bytes).unwrap()).emit(&mut out);
            prop_assert_eq!((&out[..8], &out[8..]), (&start[..], &[0; 64][..]));
        }
    }
}
