//! IPv4 header without options and never fragmented, as RoCE v2 uses it (RFC 791; IBTA volume 1, annex A17).
//!
//! ```text
//!   +-------+-------+-----------+---+-------------------------------+
//!  0|   4   |   5   |   DSCP    |ECN|         total length          |
//!   +-------+-------+-----------+---+-+-+-+-------------------------+
//!  4|        identification         |0|D|0|            0            |
//!   +---------------+---------------+-+-+-+-------------------------+
//!  8|      TTL      |   protocol    |        header checksum        |
//!   +---------------+---------------+-------------------------------+
//! 12|                            source                             |
//!   +---------------------------------------------------------------+
//! 16|                          destination                          |
//!   +---------------------------------------------------------------+
//! ```
//!
//! The ICRC covers all fields, including the identification, except DSCP, ECN, TTL and checksum.

use core::fmt;
use core::net::Ipv4Addr;

use zerocopy::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;

/// Length of the header in bytes.
pub const LEN: usize = 20;

/// Protocol number of UDP, in IPv4 and IPv6.
pub const PROTOCOL_UDP: u8 = 17;

const VERSION_IHL: u32 = 0x45 << 24;
const DONT_FRAGMENT: u32 = 0x4000;

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    version_tos_len: U32,
    ident_fragment: U32,
    ttl_protocol_checksum: U32,
    source: U32,
    destination: U32,
}
const _: () = assert!(size_of::<Raw>() == LEN);

/// A borrowed header whose version, lengths and fragment field have been checked, but not its checksum.
#[derive(Copy, Clone, Debug)]
pub struct View<'a>(&'a Raw);

impl<'a> View<'a> {
    /// Returns a view of the header at the start of `bytes`, which must contain the whole packet.
    ///
    /// Fails with [`WireError::Truncated`], [`WireError::NotIp`] for another version,
    /// [`WireError::IpOptions`], [`WireError::Length`] for a total length less than that of the header, or
    /// [`WireError::Fragment`].
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        let (raw, _) = Raw::ref_from_prefix(bytes).map_err(|_| WireError::Truncated)?;
        let first = raw.version_tos_len.get();
        if first & 0xff << 24 != VERSION_IHL {
            return Err(if first >> 28 == 4 { WireError::IpOptions } else { WireError::NotIp });
        }
        let total = first as u16 as usize;
        if total < LEN {
            return Err(WireError::Length);
        }
        if total > bytes.len() {
            return Err(WireError::Truncated);
        }
        if raw.ident_fragment.get() & 0xffff & !DONT_FRAGMENT != 0 {
            return Err(WireError::Fragment);
        }
        Ok(View(raw))
    }

    /// Differentiated services code point, 6 bits.
    #[inline]
    pub fn dscp(&self) -> u8 {
        (self.0.version_tos_len.get() >> 18) as u8 & 0x3f
    }

    /// Explicit congestion notification, 2 bits: 0 not ECN-capable, 1 and 2 capable, 3 congestion
    /// experienced.
    #[inline]
    pub fn ecn(&self) -> u8 {
        (self.0.version_tos_len.get() >> 16) as u8 & 3
    }

    /// Length of the payload after the header in bytes, at most 65515.
    #[inline]
    pub fn payload_len(&self) -> u16 {
        self.0.version_tos_len.get() as u16 - LEN as u16
    }

    /// Identification number of the packet; covered by the ICRC.
    #[inline]
    pub fn ident(&self) -> u16 {
        (self.0.ident_fragment.get() >> 16) as u16
    }

    /// Don't-fragment flag of the header.
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        self.0.ident_fragment.get() & DONT_FRAGMENT != 0
    }

    /// Time to live: remaining hops.
    #[inline]
    pub fn ttl(&self) -> u8 {
        (self.0.ttl_protocol_checksum.get() >> 24) as u8
    }

    /// Protocol number of the payload.
    #[inline]
    pub fn protocol(&self) -> u8 {
        (self.0.ttl_protocol_checksum.get() >> 16) as u8
    }

    /// Returns true if the header checksum is correct.
    #[inline]
    pub fn checksum_ok(&self) -> bool {
        let Raw { version_tos_len, ident_fragment, ttl_protocol_checksum, source, destination } = self.0;
        let words = [version_tos_len, ident_fragment, ttl_protocol_checksum, source, destination];
        // The sum of words in another byte order is the same sum in that order (RFC 1071 §2), and 0xffff is
        // the same in both.
        fold(words.iter().map(|word| u64::from(u32::from_ne_bytes(word.to_bytes()))).sum()) == 0xffff
    }

    /// Source address of the packet.
    #[inline]
    pub fn source(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.0.source.get())
    }

    /// Destination address of the packet.
    #[inline]
    pub fn destination(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.0.destination.get())
    }
}

/// The header as a value. `emit` computes version, header length and checksum, so these are not fields.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Differentiated services code point, 6 bits; `emit` keeps 6 bits.
    pub dscp: u8,
    /// Explicit congestion notification, 2 bits: 0 not ECN-capable, 1 and 2 capable, 3 congestion
    /// experienced; `emit` keeps 2 bits.
    pub ecn: u8,
    /// Length of the payload after the header in bytes, at most 65515; `emit` panics above 65515.
    pub payload_len: u16,
    /// Identification number of the packet; covered by the ICRC.
    pub ident: u16,
    /// Don't-fragment flag of the header.
    pub dont_fragment: bool,
    /// Time to live: remaining hops.
    pub ttl: u8,
    /// Protocol number of the payload.
    pub protocol: u8,
    /// Source address of the packet.
    pub source: Ipv4Addr,
    /// Destination address of the packet.
    pub destination: Ipv4Addr,
}

impl Repr {
    /// Converts a checked header into a value.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr {
            dscp: view.dscp(),
            ecn: view.ecn(),
            payload_len: view.payload_len(),
            ident: view.ident(),
            dont_fragment: view.dont_fragment(),
            ttl: view.ttl(),
            protocol: view.protocol(),
            source: view.source(),
            destination: view.destination(),
        }
    }

    /// Writes [`LEN`] bytes, including the checksum, at the start of `out`. Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let total_len =
            self.payload_len.checked_add(LEN as u16).expect("an IPv4 payload is at most 65515 bytes");
        let tos = u32::from(self.dscp << 2 | self.ecn & 3);
        let fragment = if self.dont_fragment { DONT_FRAGMENT } else { 0 };
        let ttl_protocol = u32::from(self.ttl) << 24 | u32::from(self.protocol) << 16;
        let mut raw = Raw {
            version_tos_len: U32::new(VERSION_IHL | tos << 16 | u32::from(total_len)),
            ident_fragment: U32::new(u32::from(self.ident) << 16 | fragment),
            ttl_protocol_checksum: U32::new(ttl_protocol),
            source: U32::new(self.source.to_bits()),
            destination: U32::new(self.destination.to_bits()),
        };
        let checksum = !ones_complement_sum(&raw);
        raw.ttl_protocol_checksum = U32::new(ttl_protocol | u32::from(checksum));
        let (place, _) = Raw::mut_from_prefix(out).expect("space for an IPv4 header");
        *place = raw;
    }
}

/// Returns the ones' complement sum of a header (RFC 1071). For a header with a correct checksum it is
/// 0xffff.
#[inline]
fn ones_complement_sum(raw: &Raw) -> u16 {
    let words =
        [raw.version_tos_len, raw.ident_fragment, raw.ttl_protocol_checksum, raw.source, raw.destination];
    // Pairs of 16-bit words can be added as 32-bit words if the carries are folded back at the end.
    fold(words.iter().map(|word| u64::from(word.get())).sum())
}

/// Returns the ones' complement sum of 16-bit words from a sum of pairs of them, which has less than 48 bits.
#[inline(always)]
fn fold(sum: u64) -> u16 {
    let (sum, carry) = (sum as u32).overflowing_add((sum >> 32) as u32);
    let sum = sum.wrapping_add(u32::from(carry));
    // The addition of both halves in either order leaves the sum, with its carry, in the upper half.
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {} id={} len={}", self.source, self.destination, self.ident, self.payload_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A header and four bytes of payload.
    const BYTES: [u8; LEN + 4] = [
        0x45, 0x6a, 0x00, 0x18, // version, TOS, total length 24
        0x12, 0x34, 0x40, 0x00, // id, DF
        0x40, 0x11, 0x14, 0x35, // TTL, UDP, checksum
        0x0a, 0x00, 0x00, 0x01, 0x0a, 0x00, 0x00, 0x02, 0xde, 0xad, 0xbe, 0xef,
    ];
    const VALUE: Repr = Repr {
        dscp: 26,
        ecn: 2,
        payload_len: 4,
        ident: 0x1234,
        dont_fragment: true,
        ttl: 64,
        protocol: PROTOCOL_UDP,
        source: Ipv4Addr::new(10, 0, 0, 1),
        destination: Ipv4Addr::new(10, 0, 0, 2),
    };

    #[test]
    fn literal_bytes() {
        let view = View::new(&BYTES).unwrap();
        assert!(view.checksum_ok());
        assert_eq!(Repr::parse(&view), VALUE);
        let mut out = [0x5a; LEN + 1];
        VALUE.emit(&mut out);
        assert_eq!((&out[..LEN], out[LEN]), (&BYTES[..LEN], 0x5a));
        assert_eq!(VALUE.to_string(), "10.0.0.1 > 10.0.0.2 id=4660 len=4");
    }

    #[test]
    fn every_corrupt_bit_is_an_error_or_a_wrong_checksum() {
        for bit in 0..LEN * 8 {
            let mut bytes = BYTES;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!View::new(&bytes).is_ok_and(|view| view.checksum_ok()), "bit {bit}");
        }
    }

    #[test]
    fn refusals() {
        let with = |offset: usize, value: u8| {
            let mut bytes = BYTES;
            bytes[offset] = value;
            View::new(&bytes).unwrap_err()
        };
        for len in 0..BYTES.len() {
            assert_eq!(View::new(&BYTES[..len]).unwrap_err(), WireError::Truncated);
        }
        assert_eq!(with(0, 0x65), WireError::NotIp);
        assert_eq!(with(0, 0x46), WireError::IpOptions);
        assert_eq!(with(3, 19), WireError::Length);
        assert_eq!(with(3, 25), WireError::Truncated);
        assert_eq!(with(6, 0x20), WireError::Fragment);
        assert_eq!(with(7, 0x01), WireError::Fragment);
    }

    proptest! {
        #[test]
        fn values_round_trip(
            (dscp, ecn, payload_len, ident) in (0u8..64, 0u8..4, 0u16..1000, any::<u16>()),
            (dont_fragment, ttl, protocol) in any::<(bool, u8, u8)>(),
            (source, destination) in any::<(Ipv4Addr, Ipv4Addr)>(),
        ) {
            let value =
                Repr { dscp, ecn, payload_len, ident, dont_fragment, ttl, protocol, source, destination };
            let mut out = [0; LEN + 1000];
            value.emit(&mut out);
            let view = View::new(&out).unwrap();
            prop_assert!(view.checksum_ok());
            prop_assert_eq!(Repr::parse(&view), value);
        }
    }
}
