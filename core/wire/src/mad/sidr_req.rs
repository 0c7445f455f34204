//! SIDR_REQ: a request for the queue pair of a datagram service (IBTA volume 1, chapter 12.11.1).
//!
//! ```text
//!   +---------------------------------------------------------------+
//!   0|                          request id                          |
//!   +-------------------------------+-------------------------------+
//!   4|             P_Key            |            reserved           |
//!   +-------------------------------+-------------------------------+
//!   8|                        service id (8)                        |
//!   +---------------------------------------------------------------+
//!  16|                      private data (216)                      |
//!   +---------------------------------------------------------------+
//! ```
//!
//! The reserved bytes are sent as zero and ignored on receipt.

use core::fmt;

use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BODY_LEN, ServiceId};
use crate::WireError;

/// Length of the body in bytes.
pub const LEN: usize = BODY_LEN;

/// Length of the private data in bytes.
pub const PRIVATE_LEN: usize = 216;

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    request_id: U32,
    pkey: U16,
    reserved: U16,
    service_id: U64,
    private_data: [u8; PRIVATE_LEN],
}
const _: () = assert!(size_of::<Raw>() == LEN);

/// A borrowed body whose length has been checked.
#[derive(Copy, Clone, Debug)]
pub struct View<'a>(&'a Raw);

impl<'a> View<'a> {
    /// Returns a view of the body at the start of `bytes`, or [`WireError::Truncated`] if `bytes` is too
    /// short.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        Raw::ref_from_prefix(bytes).map(|(raw, _)| View(raw)).map_err(|_| WireError::Truncated)
    }

    /// Request id, equal in a request, its retransmissions and its answer.
    #[inline]
    pub fn request_id(&self) -> u32 {
        self.0.request_id.get()
    }

    /// Partition key of the datagrams.
    #[inline]
    pub fn pkey(&self) -> u16 {
        self.0.pkey.get()
    }

    /// Requested service.
    #[inline]
    pub fn service_id(&self) -> ServiceId {
        ServiceId(self.0.service_id.get())
    }

    /// Private data, passed from the sender's program to the receiver's.
    #[inline]
    pub fn private_data(&self) -> &'a [u8; PRIVATE_LEN] {
        &self.0.private_data
    }
}

/// The body as a value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Request id, equal in a request, its retransmissions and its answer.
    pub request_id: u32,
    /// Partition key of the datagrams.
    pub pkey: u16,
    /// Requested service.
    pub service_id: ServiceId,
    /// Private data, passed from the sender's program to the receiver's.
    pub private_data: [u8; PRIVATE_LEN],
}

impl Repr {
    /// Converts a checked body into a value.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr {
            request_id: view.request_id(),
            pkey: view.pkey(),
            service_id: view.service_id(),
            private_data: *view.private_data(),
        }
    }

    /// Writes [`LEN`] bytes at the start of `out`. Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let (place, _) = Raw::mut_from_prefix(out).expect("space for a SIDR_REQ");
        *place = Raw {
            request_id: U32::new(self.request_id),
            pkey: U16::new(self.pkey),
            reserved: U16::new(0),
            service_id: U64::new(self.service_id.0),
            private_data: self.private_data,
        };
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Repr { request_id, service_id, .. } = self;
        write!(f, "request_id={request_id:#010x} service_id={service_id}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mad::PortSpace;
    use crate::mad::tests::{any_body, body};
    use proptest::prelude::*;

    fn bytes() -> [u8; LEN] {
        body("01020304 ffff 0000 0000000001111c36 0040 1c37")
    }

    fn value() -> Repr {
        let mut private_data = [0; PRIVATE_LEN];
        private_data[..4].copy_from_slice(&[0, 0x40, 0x1c, 0x37]);
        let service_id = ServiceId::rdma_ip(PortSpace::Udp, 7222);
        Repr { request_id: 0x0102_0304, pkey: 0xffff, service_id, private_data }
    }

    #[test]
    fn literal_bytes() {
        let (bytes, value) = (bytes(), value());
        assert_eq!(Repr::parse(&View::new(&bytes).unwrap()), value);
        let mut out = [0x5a; LEN + 1];
        value.emit(&mut out);
        assert_eq!((&out[..LEN], out[LEN]), (&bytes[..], 0x5a));
        assert_eq!(value.to_string(), "request_id=0x01020304 service_id=0x0000000001111c36");
    }

    #[test]
    fn truncation_is_an_error() {
        let bytes = bytes();
        for len in 0..LEN {
            assert_eq!(View::new(&bytes[..len]).unwrap_err(), WireError::Truncated);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_round_trip_but_for_the_reserved_bits(mut bytes in any_body()) {
            let mut out = [0; LEN];
            Repr::parse(&View::new(&bytes).unwrap()).emit(&mut out);
            for (at, bits) in [(6, 0xff), (7, 0xff)] {
                bytes[at] &= !bits;
            }
            prop_assert_eq!(out, bytes);
        }
    }
}
