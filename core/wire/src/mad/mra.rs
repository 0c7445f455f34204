//! MRA: confirms the receipt of a REQ or REP whose answer takes longer (IBTA volume 1, chapter 12.6.6).
//!
//! ```text
//!   +---------------------------------------------------------------+
//!   0|                     local communication id                   |
//!   +---------------------------------------------------------------+
//!   4|                    remote communication id                   |
//!   +---+-----------+---------+-----+-------------------------------+
//!   8| A | reserved  |  time   | res |       private data (222)      |
//!   +---+-----------+---------+-----+-------------------------------+
//! ```
//!
//! A: the answered message. The reserved bits are sent as zero and ignored on receipt.

use core::fmt;

use zerocopy::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Answered, BODY_LEN};
use crate::WireError;

/// Length of the body in bytes.
pub const LEN: usize = BODY_LEN;

/// Length of the private data in bytes.
pub const PRIVATE_LEN: usize = 222;

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    local_comm_id: U32,
    remote_comm_id: U32,
    answered: u8,
    service_timeout: u8,
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

    /// Message that this MRA answers.
    #[inline]
    pub fn answered(&self) -> Answered {
        Answered::of(self.0.answered)
    }

    /// Code of the time that the answer may take, 5 bits.
    #[inline]
    pub fn service_timeout(&self) -> u8 {
        self.0.service_timeout >> 3
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
    /// Message that this MRA answers.
    pub answered: Answered,
    /// Code of the time that the answer may take; `emit` keeps 5 bits.
    pub service_timeout: u8,
    /// Private data, passed from the sender's program to the receiver's.
    pub private_data: [u8; PRIVATE_LEN],
}

impl Repr {
    /// Converts a checked body into a value.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr {
            local_comm_id: view.local_comm_id(),
            remote_comm_id: view.remote_comm_id(),
            answered: view.answered(),
            service_timeout: view.service_timeout(),
            private_data: *view.private_data(),
        }
    }

    /// Writes [`LEN`] bytes at the start of `out`. Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let (place, _) = Raw::mut_from_prefix(out).expect("space for a MRA");
        *place = Raw {
            local_comm_id: U32::new(self.local_comm_id),
            remote_comm_id: U32::new(self.remote_comm_id),
            answered: (self.answered as u8) << 6,
            service_timeout: (self.service_timeout & 0x1f) << 3,
            private_data: self.private_data,
        };
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Repr { local_comm_id, remote_comm_id, answered, service_timeout, .. } = self;
        write!(
            f,
            "local_comm_id={local_comm_id:#010x} remote_comm_id={remote_comm_id:#010x} \
             answered={answered:?} service_timeout={service_timeout}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mad::tests::{any_body, body};
    use proptest::prelude::*;

    fn bytes() -> [u8; LEN] {
        body("67571cca 88a881c1 40 c0 0102030405")
    }

    fn value() -> Repr {
        let mut private_data = [0; PRIVATE_LEN];
        private_data[..5].copy_from_slice(&[1, 2, 3, 4, 5]);
        let (local_comm_id, remote_comm_id) = (0x6757_1cca, 0x88a8_81c1);
        Repr { local_comm_id, remote_comm_id, answered: Answered::Rep, service_timeout: 24, private_data }
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
            "local_comm_id=0x67571cca remote_comm_id=0x88a881c1 answered=Rep service_timeout=24"
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
    fn values_beyond_their_field_do_not_reach_their_neighbours() {
        let mut out = [0; LEN];
        Repr { answered: Answered::Reserved, service_timeout: 0xff, ..value() }.emit(&mut out);
        assert_eq!(out[8..11], [0xc0, 0xf8, 1]);
    }

    proptest! {
        #[test]
        fn any_bytes_round_trip_but_for_the_reserved_bits(mut bytes in any_body()) {
            let mut out = [0; LEN];
            Repr::parse(&View::new(&bytes).unwrap()).emit(&mut out);
            for (at, bits) in [(8, 0x3f), (9, 0x7)] {
                bytes[at] &= !bits;
            }
            prop_assert_eq!(out, bytes);
        }
    }
}
