//! Ethernet II header, untagged.
//!
//! ```text
//!   +---------------------------------------------------------------+
//!  0|                          destination                          |
//!   +                               +-------------------------------+
//!  4|                               |                               |
//!   +-------------------------------+                               +
//!  8|                            source                             |
//!   +-------------------------------+-------------------------------+
//! 12|           EtherType           |
//!   +-------------------------------+
//! ```

use core::fmt;

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;

/// Length of the header in bytes.
pub const LEN: usize = 14;

/// EtherType of IPv4.
pub const TYPE_IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const TYPE_IPV6: u16 = 0x86dd;

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    destination: [u8; 6],
    source: [u8; 6],
    ethertype: U16,
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

    /// Destination MAC address.
    #[inline]
    pub fn destination(&self) -> [u8; 6] {
        self.0.destination
    }

    /// Source MAC address.
    #[inline]
    pub fn source(&self) -> [u8; 6] {
        self.0.source
    }

    /// The protocol of the payload (EtherType).
    #[inline]
    pub fn ethertype(&self) -> u16 {
        self.0.ethertype.get()
    }
}

/// The header as a value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Destination MAC address.
    pub destination: [u8; 6],
    /// Source MAC address.
    pub source: [u8; 6],
    /// The protocol of the payload (EtherType).
    pub ethertype: u16,
}

impl Repr {
    /// Converts a checked header into a value.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr { destination: view.destination(), source: view.source(), ethertype: view.ethertype() }
    }

    /// Writes [`LEN`] bytes at the start of `out`. Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let (place, _) = Raw::mut_from_prefix(out).expect("space for an Ethernet header");
        *place =
            Raw { destination: self.destination, source: self.source, ethertype: U16::new(self.ethertype) };
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.source;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x} > ")?;
        let [a, b, c, d, e, g] = self.destination;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x} type={:#06x}", self.ethertype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: [u8; LEN] =
        [0x02, 0x11, 0x12, 0x13, 0x14, 0x15, 0x06, 0x21, 0x22, 0x23, 0x24, 0x25, 0x86, 0xdd];
    const VALUE: Repr = Repr {
        destination: [0x02, 0x11, 0x12, 0x13, 0x14, 0x15],
        source: [0x06, 0x21, 0x22, 0x23, 0x24, 0x25],
        ethertype: TYPE_IPV6,
    };

    #[test]
    fn literal_bytes() {
        assert_eq!(Repr::parse(&View::new(&BYTES).unwrap()), VALUE);
        let mut out = [0x5a; LEN + 1];
        VALUE.emit(&mut out);
        assert_eq!((&out[..LEN], out[LEN]), (&BYTES[..], 0x5a));
        assert_eq!(VALUE.to_string(), "06:21:22:23:24:25 > 02:11:12:13:14:15 type=0x86dd");
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
