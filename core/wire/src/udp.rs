//! UDP header (RFC 768). RoCE v2's destination port is 4791; the source port distinguishes flows.
//!
//! ```text
//!  +-------------------------------+-------------------------------+
//! 0|          source port          |       destination port        |
//!  +-------------------------------+-------------------------------+
//! 4|            length             |           checksum            |
//!  +-------------------------------+-------------------------------+
//! ```
//!
//! The ICRC covers all but the checksum, which RoCE v2 sends as zero (annex A17), over IPv6 too.

use core::fmt;

use zerocopy::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;

/// Bytes of the header.
pub const LEN: usize = 8;

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    ports: U32,
    len_checksum: U32,
}
const _: () = assert!(size_of::<Raw>() == LEN);

/// A header whose length field has been checked; its checksum has not.
#[derive(Copy, Clone, Debug)]
pub struct View<'a>(&'a Raw);

impl<'a> View<'a> {
    /// The header at the start of `bytes`, which must hold the whole datagram that it announces.
    ///
    /// Errors: [`WireError::Truncated`], [`WireError::Length`] for a length below the header's.
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

    /// Port of the sender.
    #[inline]
    pub fn source_port(&self) -> u16 {
        (self.0.ports.get() >> 16) as u16
    }

    /// Port of the receiver.
    #[inline]
    pub fn destination_port(&self) -> u16 {
        self.0.ports.get() as u16
    }

    /// Bytes after the header, at most 65527.
    #[inline]
    pub fn payload_len(&self) -> u16 {
        (self.0.len_checksum.get() >> 16) as u16 - LEN as u16
    }

    /// Checksum as it stands; 0: none.
    #[inline]
    pub fn checksum(&self) -> u16 {
        self.0.len_checksum.get() as u16
    }
}

/// The header as a value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Port of the sender.
    pub source_port: u16,
    /// Port of the receiver.
    pub destination_port: u16,
    /// Bytes after the header, at most 65527; `emit` panics above 65527.
    pub payload_len: u16,
    /// Checksum as it stands; 0: none.
    pub checksum: u16,
}

impl Repr {
    /// The value of a checked header.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr {
            source_port: view.source_port(),
            destination_port: view.destination_port(),
            payload_len: view.payload_len(),
            checksum: view.checksum(),
        }
    }

    /// Writes [`LEN`] bytes at the start of `out`; panics if it is shorter.
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

    /// A header plus four bytes of payload.
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
