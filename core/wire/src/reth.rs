//! RDMA extended transport header: where a WRITE or READ goes (IBTA volume 1, chapter 9.3).
//!
//! ```text
//!   +---------------------------------------------------------------+
//!  0|                                                               |
//!   +                        virtual address                        +
//!  4|                                                               |
//!   +---------------------------------------------------------------+
//!  8|                             R_Key                             |
//!   +---------------------------------------------------------------+
//! 12|                   DMA length of the message                   |
//!   +---------------------------------------------------------------+
//! ```

use core::fmt;

use zerocopy::network_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;

/// Bytes of the header.
pub const LEN: usize = 16;

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    va: U64,
    rkey: U32,
    dma_len: U32,
}
const _: () = assert!(size_of::<Raw>() == LEN);

/// A header whose length has been checked.
#[derive(Copy, Clone, Debug)]
pub struct View<'a>(&'a Raw);

impl<'a> View<'a> {
    /// The header at the start of `bytes`; [`WireError::Truncated`] below [`LEN`] bytes.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        Raw::ref_from_prefix(bytes).map(|(raw, _)| View(raw)).map_err(|_| WireError::Truncated)
    }

    /// First byte of the message in the responder's memory, in the region's own addresses.
    #[inline]
    pub fn va(&self) -> u64 {
        self.0.va.get()
    }

    /// The key that the responder handed out.
    #[inline]
    pub fn rkey(&self) -> u32 {
        self.0.rkey.get()
    }

    /// Bytes of the whole message, not of this packet; at most 2^31 for a valid one.
    #[inline]
    pub fn dma_len(&self) -> u32 {
        self.0.dma_len.get()
    }
}

/// The header as a value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// First byte of the message in the responder's memory, in the region's own addresses.
    pub va: u64,
    /// The key that the responder handed out.
    pub rkey: u32,
    /// Bytes of the whole message, not of this packet; at most 2^31 for a valid one.
    pub dma_len: u32,
}

impl Repr {
    /// The value of a checked header.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr { va: view.va(), rkey: view.rkey(), dma_len: view.dma_len() }
    }

    /// Writes [`LEN`] bytes at the start of `out`; panics if it is shorter.
    #[inline(always)]
    pub fn emit(&self, out: &mut [u8]) {
        let (place, _) = Raw::mut_from_prefix(out).expect("space for a RETH");
        *place = Raw { va: U64::new(self.va), rkey: U32::new(self.rkey), dma_len: U32::new(self.dma_len) };
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "va={:#x} rkey={:#010x} len={}", self.va, self.rkey, self.dma_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: [u8; LEN] = [
        0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, // va
        0x11, 0x12, 0x13, 0x14, // rkey
        0x00, 0x00, 0x10, 0x01, // length
    ];
    const VALUE: Repr = Repr { va: 0x0102_0304_0506_0708, rkey: 0x1112_1314, dma_len: 4097 };

    #[test]
    fn literal_bytes() {
        assert_eq!(Repr::parse(&View::new(&BYTES).unwrap()), VALUE);
        let mut out = [0x5a; LEN + 1];
        VALUE.emit(&mut out);
        assert_eq!((&out[..LEN], out[LEN]), (&BYTES[..], 0x5a));
        assert_eq!(VALUE.to_string(), "va=0x102030405060708 rkey=0x11121314 len=4097");
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
