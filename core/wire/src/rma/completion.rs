//! What a completion adds to the [header](super::header): how the operation ended at the server.
//!
//! ```text
//!  +---------------+-----------------------------------------------+
//!  0|    status    |                      0                        |
//!  +---------------+-----------------------------------------------+
//! ```

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;

/// Bytes that it adds.
pub const LEN: usize = 4;

/// How an operation ended at the server.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// A write or rekey took effect.
    Ok = 0,
    /// The region does not grant the right, or the bytes lie outside of it.
    AccessError = 1,
}

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    status: u8,
    reserved: [u8; 3],
}
const _: () = assert!(size_of::<Raw>() == LEN);

/// Bytes whose length and status have been checked.
#[derive(Copy, Clone, Debug)]
pub struct View<'a>(&'a Raw);

impl<'a> View<'a> {
    /// The bytes behind the header; [`WireError::Truncated`] below [`LEN`] bytes, [`WireError::Length`] if
    /// the status is none.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        let (raw, _) = Raw::ref_from_prefix(bytes).map_err(|_| WireError::Truncated)?;
        if raw.status > Status::AccessError as u8 {
            return Err(WireError::UnknownMessage(raw.status));
        }
        Ok(View(raw))
    }

    /// How the operation ended.
    #[inline]
    pub fn status(&self) -> Status {
        if self.0.status == 0 { Status::Ok } else { Status::AccessError }
    }
}

/// What a completion adds, as a value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// How the operation ended.
    pub status: Status,
}

impl Repr {
    /// The value of checked bytes.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr { status: view.status() }
    }

    /// Writes [`LEN`] bytes at the start of `out`; panics if it is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let (place, _) = Raw::mut_from_prefix(out).expect("space for what a completion adds");
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
