//! REJ: refuses a REQ or REP, or abandons a connection before it is established (IBTA volume 1, chapter
//! 12.6.7).
//!
//! ```text
//!   +---------------------------------------------------------------+
//!   0|                     local communication id                   |
//!   +---------------------------------------------------------------+
//!   4|                    remote communication id                   |
//!   +---+-----------+-------------+-+-------------------------------+
//!   8| A | reserved  | info length |r|             reason            |
//!   +---+-----------+-------------+-+-------------------------------+
//!  12|                 additional information (72)                  |
//!   +---------------------------------------------------------------+
//!  84|                      private data (148)                      |
//!   +---------------------------------------------------------------+
//! ```
//!
//! A: the refused message. A sender without an id for the connection sends 0 as its own id. The reserved
//! bits are sent as zero and ignored on receipt.

use core::fmt;

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Answered, BODY_LEN, INFO_LEN, RejectReason};
use crate::WireError;

/// Length of the body in bytes.
pub const LEN: usize = BODY_LEN;

/// Length of the private data in bytes.
pub const PRIVATE_LEN: usize = 148;

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    local_comm_id: U32,
    remote_comm_id: U32,
    answered: u8,
    info_len: u8,
    reason: U16,
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

    /// Communication id of the sender.
    #[inline]
    pub fn local_comm_id(&self) -> u32 {
        self.0.local_comm_id.get()
    }

    /// Communication id of the receiver.
    #[inline]
    pub fn remote_comm_id(&self) -> u32 {
        self.0.remote_comm_id.get()
    }

    /// Message that is refused.
    #[inline]
    pub fn answered(&self) -> Answered {
        Answered::of(self.0.answered)
    }

    /// Number of valid bytes of the additional information, 0 to 72, in 7 bits.
    #[inline]
    pub fn info_len(&self) -> u8 {
        self.0.info_len >> 1
    }

    /// Reason of the refusal.
    #[inline]
    pub fn reason(&self) -> RejectReason {
        RejectReason(self.0.reason.get())
    }

    /// Additional information: the value that the sender would accept, or a GUID, depending on the reason.
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
    /// Communication id of the sender.
    pub local_comm_id: u32,
    /// Communication id of the receiver.
    pub remote_comm_id: u32,
    /// Message that is refused.
    pub answered: Answered,
    /// Number of valid bytes of the additional information, 0 to 72; `emit` keeps 7 bits.
    pub info_len: u8,
    /// Reason of the refusal.
    pub reason: RejectReason,
    /// Additional information: the value that the sender would accept, or a GUID, depending on the reason.
    pub info: [u8; INFO_LEN],
    /// Private data, passed from the sender's program to the receiver's.
    pub private_data: [u8; PRIVATE_LEN],
}

impl Repr {
    /// Returns a refusal. Truncates `info` and `private_data` to the length of their fields.
    pub fn new(
        local_comm_id: u32,
        remote_comm_id: u32,
        answered: Answered,
        reason: RejectReason,
        info: &[u8],
        private_data: &[u8],
    ) -> Repr {
        let info_len = info.len().min(INFO_LEN);
        let mut repr = Repr {
            local_comm_id,
            remote_comm_id,
            answered,
            info_len: info_len as u8,
            reason,
            info: [0; INFO_LEN],
            private_data: [0; PRIVATE_LEN],
        };
        repr.info[..info_len].copy_from_slice(&info[..info_len]);
        let private_len = private_data.len().min(PRIVATE_LEN);
        repr.private_data[..private_len].copy_from_slice(&private_data[..private_len]);
        repr
    }

    /// Returns the valid bytes of the additional information.
    pub fn info(&self) -> &[u8] {
        &self.info[..usize::from(self.info_len).min(INFO_LEN)]
    }

    /// Converts a checked body into a value.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr {
            local_comm_id: view.local_comm_id(),
            remote_comm_id: view.remote_comm_id(),
            answered: view.answered(),
            info_len: view.info_len(),
            reason: view.reason(),
            info: *view.info(),
            private_data: *view.private_data(),
        }
    }

    /// Writes [`LEN`] bytes at the start of `out`. Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let (place, _) = Raw::mut_from_prefix(out).expect("space for a REJ");
        *place = Raw {
            local_comm_id: U32::new(self.local_comm_id),
            remote_comm_id: U32::new(self.remote_comm_id),
            answered: (self.answered as u8) << 6,
            info_len: (self.info_len & 0x7f) << 1,
            reason: U16::new(self.reason.0),
            info: self.info,
            private_data: self.private_data,
        };
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Repr { local_comm_id, remote_comm_id, answered, reason, .. } = self;
        write!(
            f,
            "local_comm_id={local_comm_id:#010x} remote_comm_id={remote_comm_id:#010x} \
             answered={answered:?} reason={reason}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mad::tests::{any_body, body};
    use proptest::prelude::*;

    fn bytes() -> [u8; LEN] {
        body("00000000 88a881c1 00 02 0008 ab")
    }

    fn value() -> Repr {
        Repr::new(0, 0x88a8_81c1, Answered::Req, RejectReason::INVALID_SERVICE_ID, &[0xab], &[])
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
            "local_comm_id=0x00000000 remote_comm_id=0x88a881c1 answered=Req reason=invalid service id"
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
        for len in 0..128_u8 {
            long[9] = len << 1;
            let view = View::new(&long);
            assert_eq!(view.is_err(), usize::from(len) > INFO_LEN, "{len}");
            if let Ok(view) = view {
                assert_eq!(Repr::parse(&view).info(), &long[12..][..usize::from(len)]);
            }
        }
        let cut = Repr::new(0, 0, Answered::Rep, RejectReason(0), &[7; 100], &[8; 200]);
        assert_eq!((cut.info_len, cut.info(), cut.private_data), (72, &[7; 72][..], [8; PRIVATE_LEN]));
        long[9] = 73 << 1;
        assert_eq!(View::new(&long).unwrap_err(), WireError::Length);
        let mut out = [0; LEN];
        Repr { info_len: 0xff, ..value() }.emit(&mut out);
        assert_eq!(out[9], 0xfe);
    }

    proptest! {
        #[test]
        fn any_bytes_round_trip_but_for_the_reserved_bits(mut bytes in any_body()) {
            prop_assume!(View::new(&bytes).is_ok());
            let mut out = [0; LEN];
            Repr::parse(&View::new(&bytes).unwrap()).emit(&mut out);
            for (at, bits) in [(8, 0x3f), (9, 0x1)] {
                bytes[at] &= !bits;
            }
            prop_assert_eq!(out, bytes);
        }
    }
}
