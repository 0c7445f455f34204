//! IPv6 header without extension headers (RFC 8200; IBTA volume 1, annex A17).
//!
//! ```text
//!   +-------+---------------+---------------------------------------+
//!  0|   6   | traffic class |              flow label               |
//!   +-------+---------------+-------+---------------+---------------+
//!  4|        payload length         |  next header  |   hop limit   |
//!   +-------------------------------+---------------+---------------+
//!  8|                            source, 16 bytes                   |
//!   +---------------------------------------------------------------+
//! 24|                       destination, 16 bytes                   |
//!   +---------------------------------------------------------------+
//! ```
//!
//! The ICRC covers all fields except traffic class, flow label and hop limit.

use core::fmt;
use core::net::Ipv6Addr;

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;

/// Length of the header in bytes.
pub const LEN: usize = 40;

const VERSION: u32 = 6 << 28;
const FLOW_MASK: u32 = 0x000f_ffff;

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    version_class_flow: U32,
    payload_len: U16,
    next_header: u8,
    hop_limit: u8,
    source: [u8; 16],
    destination: [u8; 16],
}
const _: () = assert!(size_of::<Raw>() == LEN);

/// A borrowed header whose version and lengths have been checked.
#[derive(Copy, Clone, Debug)]
pub struct View<'a>(&'a Raw);

impl<'a> View<'a> {
    /// Returns a view of the header at the start of `bytes`, which must contain the whole packet.
    ///
    /// Fails with [`WireError::Truncated`], or with [`WireError::NotIp`] for another version.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        let (raw, rest) = Raw::ref_from_prefix(bytes).map_err(|_| WireError::Truncated)?;
        if raw.version_class_flow.get() >> 28 != VERSION >> 28 {
            return Err(WireError::NotIp);
        }
        if usize::from(raw.payload_len.get()) > rest.len() {
            return Err(WireError::Truncated);
        }
        Ok(View(raw))
    }

    /// Traffic class: DSCP and ECN.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        (self.0.version_class_flow.get() >> 20) as u8
    }

    /// Flow label, 20 bits.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        self.0.version_class_flow.get() & FLOW_MASK
    }

    /// Length of the payload after the header in bytes.
    #[inline]
    pub fn payload_len(&self) -> u16 {
        self.0.payload_len.get()
    }

    /// Protocol number of the payload.
    #[inline]
    pub fn next_header(&self) -> u8 {
        self.0.next_header
    }

    /// Number of remaining hops.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.0.hop_limit
    }

    /// Source address of the packet.
    #[inline]
    pub fn source(&self) -> Ipv6Addr {
        Ipv6Addr::from_octets(self.0.source)
    }

    /// Destination address of the packet.
    #[inline]
    pub fn destination(&self) -> Ipv6Addr {
        Ipv6Addr::from_octets(self.0.destination)
    }
}

/// The header as a value, without the version.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits; `emit` keeps 20 bits.
    pub flow_label: u32,
    /// Length of the payload after the header in bytes.
    pub payload_len: u16,
    /// Protocol number of the payload.
    pub next_header: u8,
    /// Number of remaining hops.
    pub hop_limit: u8,
    /// Source address of the packet.
    pub source: Ipv6Addr,
    /// Destination address of the packet.
    pub destination: Ipv6Addr,
}

impl Repr {
    /// Converts a checked header into a value.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr {
            traffic_class: view.traffic_class(),
            flow_label: view.flow_label(),
            payload_len: view.payload_len(),
            next_header: view.next_header(),
            hop_limit: view.hop_limit(),
            source: view.source(),
            destination: view.destination(),
        }
    }

    /// Writes [`LEN`] bytes at the start of `out`. Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let class = u32::from(self.traffic_class) << 20;
        let (place, _) = Raw::mut_from_prefix(out).expect("space for an IPv6 header");
        *place = Raw {
            version_class_flow: U32::new(VERSION | class | self.flow_label & FLOW_MASK),
            payload_len: U16::new(self.payload_len),
            next_header: self.next_header,
            hop_limit: self.hop_limit,
            source: self.source.octets(),
            destination: self.destination.octets(),
        };
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {} len={}", self.source, self.destination, self.payload_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A header and four bytes of payload.
    const BYTES: [u8; LEN + 4] = [
        0x6a, 0xb1, 0x23, 0x45, 0x00, 0x04, 0x11, 0x40, // version, class 0xab, label, length, UDP, hops
        0xfd, 0x00, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x01, // fd00::1
        0xfd, 0x00, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x02, // fd00::2
        0xde, 0xad, 0xbe, 0xef,
    ];
    const VALUE: Repr = Repr {
        traffic_class: 0xab,
        flow_label: 0x1_2345,
        payload_len: 4,
        next_header: 17,
        hop_limit: 64,
        source: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1),
        destination: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2),
    };

    #[test]
    fn literal_bytes() {
        assert_eq!(Repr::parse(&View::new(&BYTES).unwrap()), VALUE);
        let mut out = [0x5a; LEN + 1];
        VALUE.emit(&mut out);
        assert_eq!((&out[..LEN], out[LEN]), (&BYTES[..LEN], 0x5a));
        assert_eq!(VALUE.to_string(), "fd00::1 > fd00::2 len=4");
    }

    #[test]
    fn refusals() {
        for len in 0..BYTES.len() {
            assert_eq!(View::new(&BYTES[..len]).unwrap_err(), WireError::Truncated);
        }
        let mut bytes = BYTES;
        bytes[0] = 0x4a;
        assert_eq!(View::new(&bytes).unwrap_err(), WireError::NotIp);
    }

    proptest! {
        #[test]
        fn any_header_round_trips(mut bytes: [u8; LEN]) {
            bytes[0] = 0x60 | bytes[0] & 0x0f;
            bytes[4..6].fill(0);
            let mut out = [0; LEN];
            Repr::parse(&View::new(&bytes).unwrap()).emit(&mut out);
            prop_assert_eq!(out, bytes);
        }
    }
}
