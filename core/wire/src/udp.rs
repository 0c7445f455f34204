//! UDP header (RFC 768). The destination port of RoCE v2 is 4791; the source port distinguishes flows.
//!
//! ```text
//!  +-------------------------------+-------------------------------+
//! 0|          source port          |       destination port        |
//!  +-------------------------------+-------------------------------+
//! 4|            length             |           checksum            |
//!  +-------------------------------+-------------------------------+
//! ```
//!
//! The ICRC covers all fields except the checksum, which RoCE v2 sends as zero even over IPv6 (annex A17).

use core::fmt;

use zerocopy::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;

/// Length of the header in bytes.
pub const LEN: usize = 8;

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    ports: U32,
    len_checksum: U32,
}
const _: () = assert!(size_of::<Raw>() == LEN);

/// A borrowed header whose length field has been checked, but not its checksum.
#[derive(Copy, Clone, Debug)]
pub struct View<'a>(&'a Raw);

impl<'a> View<'a> {
    /// Returns a view of the header at the start of `bytes`, which must contain the whole datagram.
    ///
    /// Fails with [`WireError::Truncated`], or with [`WireError::Length`] for a length less than that of the
    /// header.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        let (raw, _) = Raw::ref_from_prefix(bytes).map_err(|_| WireError::Truncated)?;
        let len = (raw.len_checksum.get() >> 16) as usize;
        if len < LEN {
            return Err(WireError::Length);
        }
        if len > bytes.len() {
            return Err(WireError::Truncated);
        }
        Ok(View(raw))
    }

    /// Source port of the datagram.
    #[inline]
    pub fn source_port(&self) -> u16 {
        (self.0.ports.get() >> 16) as u16
    }

    /// Destination port of the datagram.
    #[inline]
    pub fn destination_port(&self) -> u16 {
        self.0.ports.get() as u16
    }

    /// Length of the payload after the header in bytes, at most 65527.
    #[inline]
    pub fn payload_len(&self) -> u16 {
        (self.0.len_checksum.get() >> 16) as u16 - LEN as u16
    }

    /// Checksum field, not validated; 0 means none.
    #[inline]
    pub fn checksum(&self) -> u16 {
        self.0.len_checksum.get() as u16
    }
}

/// The header as a value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Source port of the datagram.
    pub source_port: u16,
    /// Destination port of the datagram.
    pub destination_port: u16,
    /// Length of the payload after the header in bytes, at most 65527; `emit` panics above 65527.
    pub payload_len: u16,
    /// Checksum field, not validated; 0 means none.
    pub checksum: u16,
}

impl Repr {
    /// Converts a checked header into a value.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr {
            source_port: view.source_port(),
            destination_port: view.destination_port(),
            payload_len: view.payload_len(),
            checksum: view.checksum(),
        }
    }

    /// Writes [`LEN`] bytes at the start of `out`. Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let len = self.payload_len.checked_add(LEN as u16).expect("a UDP payload is at most 65527 bytes");
        let (place, _) = Raw::mut_from_prefix(out).expect("space for a UDP header");
        *place = Raw {
            ports: U32::new(u32::from(self.source_port) << 16 | u32::from(self.destination_port)),
            len_checksum: U32::new(u32::from(len) << 16 | u32::from(self.checksum)),
        };
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {} > {} len={}", self.source_port, self.destination_port, self.payload_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A header and four bytes of payload.
    const BYTES: [u8; LEN + 4] = [0xc0, 0x01, 0x12, 0xb7, 0x00, 0x0c, 0xab, 0xcd, 1, 2, 3, 4];
    const VALUE: Repr =
        Repr { source_port: 0xc001, destination_port: crate::ROCE_PORT, payload_len: 4, checksum: 0xabcd };

    #[test]
    fn literal_bytes() {
        assert_eq!(Repr::parse(&View::new(&BYTES).unwrap()), VALUE);
        let mut out = [0x5a; LEN + 1];
        VALUE.emit(&mut out);
        assert_eq!((&out[..LEN], out[LEN]), (&BYTES[..LEN], 0x5a));
        assert_eq!(VALUE.to_string(), "port 49153 > 4791 len=4");
    }

    #[test]
    fn refusals() {
        for len in 0..BYTES.len() {
            assert_eq!(View::new(&BYTES[..len]).unwrap_err(), WireError::Truncated);
        }
        let mut bytes = BYTES;
        bytes[5] = 7;
        assert_eq!(View::new(&bytes).unwrap_err(), WireError::Length);
    }

    proptest! {
        #[test]
        fn any_header_round_trips(mut bytes: [u8; LEN]) {
            bytes[4..6].copy_from_slice(&[0, LEN as u8]);
            let mut out = [0; LEN];
            Repr::parse(&View::new(&bytes).unwrap()).emit(&mut out);
            prop_assert_eq!(out, bytes);
        }
    }
}
