//! SIDR_REP: the queue pair of a datagram service, or the reason why there is none (IBTA volume 1, chapter
//! 12.11.2).
//!
//! ```text
//!   +---------------------------------------------------------------+
//!   0|                          request id                          |
//!   +---------------+---------------+-------------------------------+
//!   4|    status     |  info length  |            reserved           |
//!   +---------------+---------------+---------------+---------------+
//!   8|                      QPN                     |   reserved    |
//!   +-----------------------------------------------+---------------+
//!  12|                        service id (8)                        |
//!   +---------------------------------------------------------------+
//!  20|                            Q_Key                             |
//!   +---------------------------------------------------------------+
//!  24|                 additional information (72)                  |
//!   +---------------------------------------------------------------+
//!  96|                      private data (136)                      |
//!   +---------------------------------------------------------------+
//! ```
//!
//! The reserved bytes are sent as zero and ignored on receipt.

use core::fmt;

use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BODY_LEN, INFO_LEN, ServiceId};
use crate::{Qpn, WireError};

/// Length of the body in bytes.
pub const LEN: usize = BODY_LEN;

/// Length of the private data in bytes.
pub const PRIVATE_LEN: usize = 136;

/// Result of the lookup of a datagram service (IBTA volume 1, chapter 12.11.2).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SidrStatus(pub u8);

impl SidrStatus {
    /// The service exists; the message has its queue pair and Q_Key.
    pub const VALID: SidrStatus = SidrStatus(0);
    /// The service does not exist.
    pub const UNSUPPORTED: SidrStatus = SidrStatus(1);
    /// The program that offers the service refused.
    pub const REJECTED: SidrStatus = SidrStatus(2);
    /// No queue pair is available for the service.
    pub const NO_QP: SidrStatus = SidrStatus(3);
    /// Another port offers the service.
    pub const REDIRECT: SidrStatus = SidrStatus(4);
    /// The version of the request is not supported.
    pub const UNSUPPORTED_VERSION: SidrStatus = SidrStatus(5);
}

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    request_id: U32,
    status: u8,
    info_len: u8,
    reserved: U16,
    qpn: U32,
    service_id: U64,
    qkey: U32,
    info: [u8; INFO_LEN],
    private_data: [u8; PRIVATE_LEN],
}
const _: () = assert!(size_of::<Raw>() == LEN);

/// A borrowed body whose length and length of additional information have been checked.
#[derive(Copy, Clone, Debug)]
pub struct View<'a>(&'a Raw);

impl<'a> View<'a> {
    /// Returns a view of the body at the start of `bytes`. Fails with [`WireError::Truncated`] if `bytes` is
    /// too short, and with [`WireError::Length`] if the additional information is longer than its field.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        let (raw, _) = Raw::ref_from_prefix(bytes).map_err(|_| WireError::Truncated)?;
        let view = View(raw);
        if usize::from(view.info_len()) <= INFO_LEN { Ok(view) } else { Err(WireError::Length) }
    }

    /// Id of the request that this message answers.
    #[inline]
    pub fn request_id(&self) -> u32 {
        self.0.request_id.get()
    }

    /// Result of the lookup.
    #[inline]
    pub fn status(&self) -> SidrStatus {
        SidrStatus(self.0.status)
    }

    /// Number of valid bytes of the additional information, 0 to 72.
    #[inline]
    pub fn info_len(&self) -> u8 {
        self.0.info_len
    }

    /// Queue pair number for the datagrams.
    #[inline]
    pub fn qpn(&self) -> Qpn {
        Qpn::new(self.0.qpn.get() >> 8)
    }

    /// Service that was requested.
    #[inline]
    pub fn service_id(&self) -> ServiceId {
        ServiceId(self.0.service_id.get())
    }

    /// Q_Key that datagrams must carry.
    #[inline]
    pub fn qkey(&self) -> u32 {
        self.0.qkey.get()
    }

    /// Additional information, depending on the status.
    #[inline]
    pub fn info(&self) -> &'a [u8; INFO_LEN] {
        &self.0.info
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
    /// Id of the request that this message answers.
    pub request_id: u32,
    /// Result of the lookup.
    pub status: SidrStatus,
    /// Number of valid bytes of the additional information, 0 to 72.
    pub info_len: u8,
    /// Queue pair number for the datagrams.
    pub qpn: Qpn,
    /// Service that was requested.
    pub service_id: ServiceId,
    /// Q_Key that datagrams must carry.
    pub qkey: u32,
    /// Additional information, depending on the status.
    pub info: [u8; INFO_LEN],
    /// Private data, passed from the sender's program to the receiver's.
    pub private_data: [u8; PRIVATE_LEN],
}

impl Repr {
    /// Converts a checked body into a value.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr {
            request_id: view.request_id(),
            status: view.status(),
            info_len: view.info_len(),
            qpn: view.qpn(),
            service_id: view.service_id(),
            qkey: view.qkey(),
            info: *view.info(),
            private_data: *view.private_data(),
        }
    }

    /// Writes [`LEN`] bytes at the start of `out`. Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let (place, _) = Raw::mut_from_prefix(out).expect("space for a SIDR_REP");
        *place = Raw {
            request_id: U32::new(self.request_id),
            status: self.status.0,
            info_len: self.info_len,
            reserved: U16::new(0),
            qpn: U32::new(self.qpn.get() << 8),
            service_id: U64::new(self.service_id.0),
            qkey: U32::new(self.qkey),
            info: self.info,
            private_data: self.private_data,
        };
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Repr { request_id, status, qpn, qkey, .. } = self;
        write!(f, "request_id={request_id:#010x} status={status:?} qpn={qpn} qkey={qkey:#010x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mad::PortSpace;
    use crate::mad::tests::{any_body, body};
    use proptest::prelude::*;

    fn bytes() -> [u8; LEN] {
        body("01020304 00 00 0000 00001c00 0000000001111c36 01234567")
    }

    fn value() -> Repr {
        Repr {
            request_id: 0x0102_0304,
            status: SidrStatus::VALID,
            info_len: 0,
            qpn: Qpn::new(0x1c),
            service_id: ServiceId::rdma_ip(PortSpace::Udp, 7222),
            qkey: 0x0123_4567,
            info: [0; INFO_LEN],
            private_data: [0; PRIVATE_LEN],
        }
    }

    #[test]
    fn literal_bytes() {
        let (bytes, value) = (bytes(), value());
        assert_eq!(Repr::parse(&View::new(&bytes).unwrap()), value);
        let mut out = [0x5a; LEN + 1];
        value.emit(&mut out);
        assert_eq!((&out[..LEN], out[LEN]), (&bytes[..], 0x5a));
        assert_eq!(
            value.to_string(),
            "request_id=0x01020304 status=SidrStatus(0) qpn=0x00001c qkey=0x01234567"
        );
    }

    #[test]
    fn truncation_is_an_error() {
        let bytes = bytes();
        for len in 0..LEN {
            assert_eq!(View::new(&bytes[..len]).unwrap_err(), WireError::Truncated);
        }
    }

    #[test]
    fn information_longer_than_its_field_is_an_error() {
        let mut long = bytes();
        for len in 0..=u8::MAX {
            long[5] = len;
            assert_eq!(View::new(&long).is_err(), usize::from(len) > INFO_LEN, "{len}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_round_trip_but_for_the_reserved_bits(mut bytes in any_body()) {
            prop_assume!(View::new(&bytes).is_ok());
            let mut out = [0; LEN];
            Repr::parse(&View::new(&bytes).unwrap()).emit(&mut out);
            for (at, bits) in [(6, 0xff), (7, 0xff), (11, 0xff)] {
                bytes[at] &= !bits;
            }
            prop_assert_eq!(out, bytes);
        }
    }
}
