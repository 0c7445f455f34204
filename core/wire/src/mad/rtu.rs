//! RTU: the active side is ready to use the connection (IBTA volume 1, chapter 12.6.9). A DREP has the same
//! body layout.
//!
//! ```text
//!   +---------------------------------------------------------------+
//!   0|                     local communication id                   |
//!   +---------------------------------------------------------------+
//!   4|                    remote communication id                   |
//!   +---------------------------------------------------------------+
//!   8|                      private data (224)                      |
//!   +---------------------------------------------------------------+
//! ```

use core::fmt;

use zerocopy::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::BODY_LEN;
use crate::WireError;

/// Length of the body in bytes.
pub const LEN: usize = BODY_LEN;

/// Length of the private data in bytes.
pub const PRIVATE_LEN: usize = 224;

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    local_comm_id: U32,
    remote_comm_id: U32,
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
            private_data: *view.private_data(),
        }
    }

    /// Writes [`LEN`] bytes at the start of `out`. Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let (place, _) = Raw::mut_from_prefix(out).expect("space for the body");
        *place = Raw {
            local_comm_id: U32::new(self.local_comm_id),
            remote_comm_id: U32::new(self.remote_comm_id),
            private_data: self.private_data,
        };
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Repr { local_comm_id, remote_comm_id, .. } = self;
        write!(f, "local_comm_id={local_comm_id:#010x} remote_comm_id={remote_comm_id:#010x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mad::tests::{any_body, body};
    use proptest::prelude::*;

    /// Bytes of the first RTU in the Soft-RoCE capture.
    fn bytes() -> [u8; LEN] {
        body("88a881c1 67571cca")
    }

    fn value() -> Repr {
        let (local_comm_id, remote_comm_id) = (0x88a8_81c1, 0x6757_1cca);
        Repr { local_comm_id, remote_comm_id, private_data: [0; PRIVATE_LEN] }
    }

    #[test]
    fn literal_bytes() {
        let (bytes, value) = (bytes(), value());
        assert_eq!(Repr::parse(&View::new(&bytes).unwrap()), value);
        let mut out = [0x5a; LEN + 1];
        value.emit(&mut out);
        assert_eq!((&out[..LEN], out[LEN]), (&bytes[..], 0x5a));
        assert_eq!(value.to_string(), "local_comm_id=0x88a881c1 remote_comm_id=0x67571cca");
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
        fn any_bytes_round_trip(bytes in any_body()) {
            let mut out = [0; LEN];
            Repr::parse(&View::new(&bytes).unwrap()).emit(&mut out);
            prop_assert_eq!(out, bytes);
        }
    }
}
