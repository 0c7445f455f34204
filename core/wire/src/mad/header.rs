//! The header of every MAD (IBTA volume 1, chapter 13.4.2).
//!
//! ```text
//!  +---------------+---------------+---------------+---------------+
//!  0| base version 1|     class     | class version |    method     |
//!  +---------------+---------------+---------------+---------------+
//!  4|            status             |        class specific         |
//!  +-------------------------------+-------------------------------+
//!  8|                        transaction id                        |
//!   |                                                              |
//!  +-------------------------------+-------------------------------+
//! 16|           attribute           |           reserved           |
//!  +-------------------------------+-------------------------------+
//! 20|                      attribute modifier                      |
//!  +---------------------------------------------------------------+
//! ```
//!
//! The reserved bytes are sent as zero and not looked at.

use core::fmt;

use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;

/// Bytes of the header.
pub const LEN: usize = 24;

/// The version of all MADs.
pub const BASE_VERSION: u8 = 1;

/// The management class of the communication manager.
pub const CM_CLASS: u8 = 7;

/// The version of that class.
pub const CM_CLASS_VERSION: u8 = 2;

/// What a MAD does with its attribute.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Method(pub u8);

impl Method {
    /// Asks for an attribute.
    pub const GET: Method = Method(0x01);
    /// A message of the communication manager: its answer is another message, not a response.
    pub const SEND: Method = Method(0x03);
    /// Answers [`Method::GET`].
    pub const GET_RESP: Method = Method(0x81);
}

/// What a MAD's body is.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attribute(pub u16);

impl Attribute {
    /// What a management class can do.
    pub const CLASS_PORT_INFO: Attribute = Attribute(0x0001);
    /// Request for a connection.
    pub const REQ: Attribute = Attribute(0x0010);
    /// A message was received, its answer takes time.
    pub const MRA: Attribute = Attribute(0x0011);
    /// A message is refused.
    pub const REJ: Attribute = Attribute(0x0012);
    /// Answer to a request for a connection.
    pub const REP: Attribute = Attribute(0x0013);
    /// Ready to use.
    pub const RTU: Attribute = Attribute(0x0014);
    /// Request to disconnect.
    pub const DREQ: Attribute = Attribute(0x0015);
    /// Answer to a request to disconnect.
    pub const DREP: Attribute = Attribute(0x0016);
    /// Asks for the queue pair of a datagram service.
    pub const SIDR_REQ: Attribute = Attribute(0x0017);
    /// The queue pair of a datagram service.
    pub const SIDR_REP: Attribute = Attribute(0x0018);
    /// Loads an alternate path.
    pub const LAP: Attribute = Attribute(0x0019);
    /// Answers [`Attribute::LAP`].
    pub const APR: Attribute = Attribute(0x001a);

    /// IBTA's name, if it is an attribute of the communication manager.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Attribute::CLASS_PORT_INFO => "ClassPortInfo",
            Attribute::REQ => "REQ",
            Attribute::MRA => "MRA",
            Attribute::REJ => "REJ",
            Attribute::REP => "REP",
            Attribute::RTU => "RTU",
            Attribute::DREQ => "DREQ",
            Attribute::DREP => "DREP",
            Attribute::SIDR_REQ => "SIDR_REQ",
            Attribute::SIDR_REP => "SIDR_REP",
            Attribute::LAP => "LAP",
            Attribute::APR => "APR",
            _ => return None,
        })
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{:#06x}", self.0),
        }
    }
}

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    base_version: u8,
    class: u8,
    class_version: u8,
    method: u8,
    status: U16,
    class_specific: U16,
    transaction_id: U64,
    attribute: U16,
    reserved: U16,
    modifier: U32,
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

    /// The version of MADs, [`BASE_VERSION`].
    #[inline]
    pub fn base_version(&self) -> u8 {
        self.0.base_version
    }

    /// The management class.
    #[inline]
    pub fn class(&self) -> u8 {
        self.0.class
    }

    /// The version of the management class.
    #[inline]
    pub fn class_version(&self) -> u8 {
        self.0.class_version
    }

    /// What is done with the attribute.
    #[inline]
    pub fn method(&self) -> Method {
        Method(self.0.method)
    }

    /// How a request ended; 0 in all else.
    #[inline]
    pub fn status(&self) -> u16 {
        self.0.status.get()
    }

    /// For the class to use; the communication manager does not.
    #[inline]
    pub fn class_specific(&self) -> u16 {
        self.0.class_specific.get()
    }

    /// The same in a message, its repetitions and their answers.
    #[inline]
    pub fn transaction_id(&self) -> u64 {
        self.0.transaction_id.get()
    }

    /// What the body is.
    #[inline]
    pub fn attribute(&self) -> Attribute {
        Attribute(self.0.attribute.get())
    }

    /// Which of several attributes; the communication manager has one of each.
    #[inline]
    pub fn modifier(&self) -> u32 {
        self.0.modifier.get()
    }
}

/// The header as a value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The version of MADs, [`BASE_VERSION`].
    pub base_version: u8,
    /// The management class.
    pub class: u8,
    /// The version of the management class.
    pub class_version: u8,
    /// What is done with the attribute.
    pub method: Method,
    /// How a request ended; 0 in all else.
    pub status: u16,
    /// For the class to use; the communication manager does not.
    pub class_specific: u16,
    /// The same in a message, its repetitions and their answers.
    pub transaction_id: u64,
    /// What the body is.
    pub attribute: Attribute,
    /// Which of several attributes; the communication manager has one of each.
    pub modifier: u32,
}

impl Repr {
    /// The header of a message of the communication manager.
    pub const fn cm(method: Method, transaction_id: u64, attribute: Attribute) -> Repr {
        Repr {
            base_version: BASE_VERSION,
            class: CM_CLASS,
            class_version: CM_CLASS_VERSION,
            method,
            status: 0,
            class_specific: 0,
            transaction_id,
            attribute,
            modifier: 0,
        }
    }

    /// The value of a checked header.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr {
            base_version: view.base_version(),
            class: view.class(),
            class_version: view.class_version(),
            method: view.method(),
            status: view.status(),
            class_specific: view.class_specific(),
            transaction_id: view.transaction_id(),
            attribute: view.attribute(),
            modifier: view.modifier(),
        }
    }

    /// Writes [`LEN`] bytes at the start of `out`; panics if it is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let (place, _) = Raw::mut_from_prefix(out).expect("space for the header of a MAD");
        *place = Raw {
            base_version: self.base_version,
            class: self.class,
            class_version: self.class_version,
            method: self.method.0,
            status: U16::new(self.status),
            class_specific: U16::new(self.class_specific),
            transaction_id: U64::new(self.transaction_id),
            attribute: U16::new(self.attribute.0),
            reserved: U16::new(0),
            modifier: U32::new(self.modifier),
        };
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Repr { class, class_version, method: Method(method), status, transaction_id, attribute, .. } =
            self;
        write!(
            f,
            "class={class:#04x}.{class_version} method={method:#04x} status={status} tid={transaction_id:#x} \
             {attribute}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Of the first REQ in Soft-RoCE's capture.
    const BYTES: [u8; LEN] =
        [1, 7, 2, 3, 0, 0, 0, 0, 0, 0, 0, 2, 0xc1, 0x81, 0xa8, 0x88, 0, 0x10, 0, 0, 0, 0, 0, 0];
    const VALUE: Repr = Repr::cm(Method::SEND, 0x2_c181_a888, Attribute::REQ);

    #[test]
    fn literal_bytes() {
        assert_eq!(Repr::parse(&View::new(&BYTES).unwrap()), VALUE);
        let mut out = [0x5a; LEN + 1];
        VALUE.emit(&mut out);
        assert_eq!((&out[..LEN], out[LEN]), (&BYTES[..], 0x5a));
        assert_eq!(VALUE.to_string(), "class=0x07.2 method=0x03 status=0 tid=0x2c181a888 REQ");
        assert_eq!(Attribute(0x1b).to_string(), "0x001b");
    }

    #[test]
    fn truncation_is_an_error() {
        for len in 0..LEN {
            assert_eq!(View::new(&BYTES[..len]).unwrap_err(), WireError::Truncated);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_round_trip_but_for_the_reserved_ones(mut bytes: [u8; LEN]) {
            let mut out = [0; LEN];
            Repr::parse(&View::new(&bytes).unwrap()).emit(&mut out);
            bytes[18..20].fill(0);
            prop_assert_eq!(out, bytes);
        }
    }
}
