//! The field that a 1RMA completion adds to the [header](super::header): the status of the operation at the
//! server.
//!
//! ```text
//!  +---------------+-----------------------------------------------+
//!  0|    status    |                      0                        |
//!  +---------------+-----------------------------------------------+
//! ```

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;

/// Length of the fields in bytes.
pub const LEN: usize = 4;

/// Status of an operation at the server.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// The write or rekey was executed.
    Ok = 0,
    /// The region does not grant the right, or the range is out of bounds.
    AccessError = 1,
}

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    status: u8,
    reserved: [u8; 3],
}
const _: () = assert!(size_of::<Raw>() == LEN);

/// The borrowed fields, whose length and status have been checked.
#[derive(Copy, Clone, Debug)]
pub struct View<'a>(&'a Raw);

impl<'a> View<'a> {
    /// Returns a view of the fields at the start of `bytes`. Fails with [`WireError::Truncated`] if `bytes`
    /// is too short, and with [`WireError::UnknownMessage`] if the status is unknown.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        let (raw, _) = Raw::ref_from_prefix(bytes).map_err(|_| WireError::Truncated)?;
        if raw.status > Status::AccessError as u8 {
            return Err(WireError::UnknownMessage(raw.status));
        }
        Ok(View(raw))
    }

    /// Status of the operation at the server.
    #[inline]
    pub fn status(&self) -> Status {
        if self.0.status == 0 { Status::Ok } else { Status::AccessError }
    }
}

/// The fields as a value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Status of the operation at the server.
    pub status: Status,
}

impl Repr {
    /// Converts the checked fields into a value.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr { status: view.status() }
    }

    /// Writes [`LEN`] bytes at the start of `out`. Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let (place, _) = Raw::mut_from_prefix(out).expect("space for the fields of a completion");
        *place = Raw { status: self.status as u8, reserved: [0; 3] };
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "status={:?}", self.status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_bytes() {
        for (bytes, status) in [([0, 0, 0, 0], Status::Ok), ([1, 0, 0, 0], Status::AccessError)] {
            assert_eq!(Repr::parse(&View::new(&bytes).unwrap()), Repr { status });
            let mut out = [0x5a; LEN + 1];
            Repr { status }.emit(&mut out);
            assert_eq!((&out[..LEN], out[LEN]), (&bytes[..], 0x5a));
        }
        assert_eq!(Repr { status: Status::Ok }.to_string(), "status=Ok");
    }

    #[test]
    fn truncation_and_other_statuses_are_errors() {
        for len in 0..LEN {
            assert_eq!(View::new(&[0; LEN][..len]).unwrap_err(), WireError::Truncated);
        }
        for status in 2..=u8::MAX {
            assert_eq!(View::new(&[status, 0, 0, 0]).unwrap_err(), WireError::UnknownMessage(status));
        }
    }
}
