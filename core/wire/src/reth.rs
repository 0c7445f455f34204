//! RDMA extended transport header (RETH): address, key and length of a WRITE or READ (IBTA volume 1, chapter
//! 9.3).
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

/// Length of the header in bytes.
pub const LEN: usize = 16;

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    va: U64,
    rkey: U32,
    dma_len: U32,
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

    /// Virtual address of the first byte of the message in the responder's memory.
    #[inline]
    pub fn va(&self) -> u64 {
        self.0.va.get()
    }

    /// Remote key (R_Key) of the responder's memory.
    #[inline]
    pub fn rkey(&self) -> u32 {
        self.0.rkey.get()
    }

    /// Length of the whole message (not of the packet) in bytes; valid up to 2^31.
    #[inline]
    pub fn dma_len(&self) -> u32 {
        self.0.dma_len.get()
    }
}

/// The header as a value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Virtual address of the first byte of the message in the responder's memory.
    pub va: u64,
    /// Remote key (R_Key) of the responder's memory.
    pub rkey: u32,
    /// Length of the whole message (not of the packet) in bytes; valid up to 2^31.
    pub dma_len: u32,
}

impl Repr {
    /// Converts a checked header into a value.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr { va: view.va(), rkey: view.rkey(), dma_len: view.dma_len() }
    }

    /// Writes [`LEN`] bytes at the start of `out`. Panics if `out` is shorter.
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
