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
//! The reserved bytes are sent as zero and ignored on receipt.

use core::fmt;

use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;

/// Length of the header in bytes.
pub const LEN: usize = 24;

/// Version of all MADs.
pub const BASE_VERSION: u8 = 1;

/// Management class of the communication manager.
pub const CM_CLASS: u8 = 7;

/// Version of the communication manager's class.
pub const CM_CLASS_VERSION: u8 = 2;

/// The operation of a MAD on its attribute.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Method(pub u8);

impl Method {
    /// Requests an attribute.
    pub const GET: Method = Method(0x01);
    /// Sends a message of the communication manager, which is answered by another message.
    pub const SEND: Method = Method(0x03);
    /// Answers [`Method::GET`].
    pub const GET_RESP: Method = Method(0x81);
}

/// The type of a MAD's body.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attribute(pub u16);

impl Attribute {
    /// Capabilities of a management class.
    pub const CLASS_PORT_INFO: Attribute = Attribute(0x0001);
    /// Connection request.
    pub const REQ: Attribute = Attribute(0x0010);
    /// A message was received and its answer takes longer.
    pub const MRA: Attribute = Attribute(0x0011);
    /// Refusal of a message.
    pub const REJ: Attribute = Attribute(0x0012);
    /// Answer to a request for a connection.
    pub const REP: Attribute = Attribute(0x0013);
    /// Ready to use.
    pub const RTU: Attribute = Attribute(0x0014);
    /// Request to disconnect.
    pub const DREQ: Attribute = Attribute(0x0015);
    /// Answer to a request to disconnect.
    pub const DREP: Attribute = Attribute(0x0016);
    /// Requests the queue pair of a datagram service.
    pub const SIDR_REQ: Attribute = Attribute(0x0017);
    /// The queue pair of a datagram service.
    pub const SIDR_REP: Attribute = Attribute(0x0018);
    /// Request to load an alternate path.
    pub const LAP: Attribute = Attribute(0x0019);
    /// Answers [`Attribute::LAP`].
    pub const APR: Attribute = Attribute(0x001a);

    /// Returns IBTA's name of an attribute of the communication manager, or `None` for other attributes.
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

    /// MAD version, [`BASE_VERSION`].
    #[inline]
    pub fn base_version(&self) -> u8 {
        self.0.base_version
    }

    /// Management class.
    #[inline]
    pub fn class(&self) -> u8 {
        self.0.class
    }

    /// Version of the management class.
    #[inline]
    pub fn class_version(&self) -> u8 {
        self.0.class_version
    }

    /// Method: the operation on the attribute.
    #[inline]
    pub fn method(&self) -> Method {
        Method(self.0.method)
    }

    /// Status of a response; 0 in other MADs.
    #[inline]
    pub fn status(&self) -> u16 {
        self.0.status.get()
    }

    /// Reserved for the management class; unused by the communication manager.
    #[inline]
    pub fn class_specific(&self) -> u16 {
        self.0.class_specific.get()
    }

    /// Transaction id, equal in a message, its retransmissions and its answers.
    #[inline]
    pub fn transaction_id(&self) -> u64 {
        self.0.transaction_id.get()
    }

    /// Attribute: the type of the body.
    #[inline]
    pub fn attribute(&self) -> Attribute {
        Attribute(self.0.attribute.get())
    }

    /// Attribute modifier; unused by the communication manager.
    #[inline]
    pub fn modifier(&self) -> u32 {
        self.0.modifier.get()
    }
}

/// The header as a value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// MAD version, [`BASE_VERSION`].
    pub base_version: u8,
    /// Management class.
    pub class: u8,
    /// Version of the management class.
    pub class_version: u8,
    /// Method: the operation on the attribute.
    pub method: Method,
    /// Status of a response; 0 in other MADs.
    pub status: u16,
    /// Reserved for the management class; unused by the communication manager.
    pub class_specific: u16,
    /// Transaction id, equal in a message, its retransmissions and its answers.
    pub transaction_id: u64,
    /// Attribute: the type of the body.
    pub attribute: Attribute,
    /// Attribute modifier; unused by the communication manager.
    pub modifier: u32,
}

impl Repr {
    /// Returns the header of a message of the communication manager.
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

    /// Converts a checked header into a value.
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

    /// Writes [`LEN`] bytes at the start of `out`. Panics if `out` is shorter.
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

    /// Bytes of the first REQ in the Soft-RoCE capture.
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
