//! The header of every 1RMA message.
//!
//! ```text
//!  +---------------+-------+-------+-------------------------------+
//!  0|     kind     |version| class |             slot              |
//!  +---------------+-------+-------+-------------------------------+
//!  4|                          RegionId                            |
//!  +---------------------------------------------------------------+
//!  8|                           offset                             |
//!   |                                                              |
//!  +---------------------------------------------------------------+
//! 16|                           length                             |
//!  +---------------------------------------------------------------+
//! 20|                     nonce: sender word                       |
//!  +---------------------------------------------------------------+
//! 24|                     nonce: counter                           |
//!   |                                                              |
//!  +---------------------------------------------------------------+
//! ```

use core::fmt;

use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;

/// Length of the header in bytes.
pub const LEN: usize = 32;

/// Version of the format that this crate writes and accepts.
pub const VERSION: u8 = 0;

/// Returns true if a packet with this first byte is a 1RMA message instead of a BTH.
#[inline]
pub const fn begins(byte: u8) -> bool {
    byte & 0xf8 == 0xe0
}

/// The kind of a message.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Request to read from a region.
    Read = 0xe0,
    /// Request to write to a region.
    Write = 0xe1,
    /// Request to change the key of a region.
    Rekey = 0xe2,
    /// Solicit: the server requests the data of a write or rekey.
    Solicit = 0xe3,
    /// Data of an operation.
    Data = 0xe4,
    /// Completion of a write or rekey, or refusal of an authentic request.
    Completion = 0xe5,
    /// NACK: the server is overloaded and executed nothing.
    Nack = 0xe6,
    /// The tag of a request was invalid.
    AuthenticationFailure = 0xe7,
}

impl Kind {
    /// All kinds, in the order of their values.
    pub const ALL: [Kind; 8] = [
        Kind::Read,
        Kind::Write,
        Kind::Rekey,
        Kind::Solicit,
        Kind::Data,
        Kind::Completion,
        Kind::Nack,
        Kind::AuthenticationFailure,
    ];

    /// Returns the kind with this first byte, or `None`.
    #[inline]
    pub const fn of(byte: u8) -> Option<Kind> {
        if begins(byte) { Some(Kind::ALL[(byte & 7) as usize]) } else { None }
    }

    /// Returns true for requests, which start an operation.
    #[inline]
    pub const fn is_request(self) -> bool {
        matches!(self, Kind::Read | Kind::Write | Kind::Rekey)
    }
}

/// Class of service of an operation (1RMA paper, §4.3).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Class {
    /// Latency class, served first.
    #[default]
    Latency = 0,
    /// Bulk class, served when the latency class is idle and up to its share of the window.
    Bulk = 1,
}

/// The nonce of a message, unique per key: the sender and a counter.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nonce {
    /// Sender: 6 bits for the engine, 26 random bits chosen at its start.
    pub sender: u32,
    /// Number of messages that the sender has sealed; never repeats.
    pub counter: u64,
}

impl Nonce {
    /// Length of a nonce in bytes.
    pub const LEN: usize = 12;

    /// Returns the bytes of the nonce as on the wire and as the input of the cipher.
    #[inline]
    pub fn bytes(&self) -> [u8; Nonce::LEN] {
        let mut bytes = [0; Nonce::LEN];
        bytes[..4].copy_from_slice(&self.sender.to_be_bytes());
        bytes[4..].copy_from_slice(&self.counter.to_be_bytes());
        bytes
    }
}

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    kind: u8,
    version_class: u8,
    slot: U16,
    region: U32,
    offset: U64,
    length: U32,
    sender: U32,
    counter: U64,
}
const _: () = assert!(size_of::<Raw>() == LEN);

/// A borrowed header whose length, kind, version and class have been checked.
#[derive(Copy, Clone, Debug)]
pub struct View<'a>(&'a Raw);

impl<'a> View<'a> {
    /// Returns a view of the header at the start of `bytes`.
    ///
    /// Fails with [`WireError::Truncated`] if `bytes` is too short, and with [`WireError::UnknownMessage`]
    /// if the kind, version or class is unknown.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        let (raw, _) = Raw::ref_from_prefix(bytes).map_err(|_| WireError::Truncated)?;
        if Kind::of(raw.kind).is_none() || raw.version_class >> 4 != VERSION || raw.version_class & 0xf > 1 {
            return Err(WireError::UnknownMessage(raw.kind));
        }
        Ok(View(raw))
    }

    /// Kind of the message.
    #[inline]
    pub fn kind(&self) -> Kind {
        Kind::ALL[usize::from(self.0.kind & 7)]
    }

    /// Class of service of the operation.
    #[inline]
    pub fn class(&self) -> Class {
        if self.0.version_class & 1 == 0 { Class::Latency } else { Class::Bulk }
    }

    /// Command slot of the initiator; in data for a server, the server's slot.
    #[inline]
    pub fn slot(&self) -> u16 {
        self.0.slot.get()
    }

    /// Number of the server's region.
    #[inline]
    pub fn region(&self) -> u32 {
        self.0.region.get()
    }

    /// Offset in the region, in bytes; in data, the offset in the operation.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.0.offset.get()
    }

    /// Length of the operation in bytes; in data, the length of the payload.
    #[inline]
    pub fn length(&self) -> u32 {
        self.0.length.get()
    }

    /// Nonce of the message.
    #[inline]
    pub fn nonce(&self) -> Nonce {
        Nonce { sender: self.0.sender.get(), counter: self.0.counter.get() }
    }
}

/// The header as a value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Kind of the message.
    pub kind: Kind,
    /// Class of service of the operation.
    pub class: Class,
    /// Command slot of the initiator; in data for a server, the server's slot.
    pub slot: u16,
    /// Number of the server's region.
    pub region: u32,
    /// Offset in the region, in bytes; in data, the offset in the operation.
    pub offset: u64,
    /// Length of the operation in bytes; in data, the length of the payload.
    pub length: u32,
    /// Nonce of the message.
    pub nonce: Nonce,
}

impl Repr {
    /// Converts a checked header into a value.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr {
            kind: view.kind(),
            class: view.class(),
            slot: view.slot(),
            region: view.region(),
            offset: view.offset(),
            length: view.length(),
            nonce: view.nonce(),
        }
    }

    /// Writes [`LEN`] bytes at the start of `out`. Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let (place, _) = Raw::mut_from_prefix(out).expect("space for a 1RMA header");
        *place = Raw {
            kind: self.kind as u8,
            version_class: VERSION << 4 | self.class as u8,
            slot: U16::new(self.slot),
            region: U32::new(self.region),
            offset: U64::new(self.offset),
            length: U32::new(self.length),
            sender: U32::new(self.nonce.sender),
            counter: U64::new(self.nonce.counter),
        };
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Repr { kind, slot, region, offset, length, .. } = self;
        write!(f, "{kind:?} slot={slot} region={region} offset={offset} length={length}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: [u8; LEN] = [
        0xe1, 0x01, 0x02, 0x03, 0x00, 0x00, 0x00, 0x07, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10, 0x40, 0x00,
        0x00, 0x0f, 0xff, 0xde, 0xad, 0xbe, 0xef, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08,
    ];
    const VALUE: Repr = Repr {
        kind: Kind::Write,
        class: Class::Bulk,
        slot: 0x0203,
        region: 7,
        offset: 0x1040,
        length: 0xfff,
        nonce: Nonce { sender: 0xdead_beef, counter: 0x0102_0304_0506_0708 },
    };

    #[test]
    fn literal_bytes() {
        assert_eq!(Repr::parse(&View::new(&BYTES).unwrap()), VALUE);
        let mut out = [0x5a; LEN + 1];
        VALUE.emit(&mut out);
        assert_eq!((&out[..LEN], out[LEN]), (&BYTES[..], 0x5a));
        assert_eq!(VALUE.nonce.bytes(), BYTES[20..]);
        assert_eq!(VALUE.to_string(), "Write slot=515 region=7 offset=4160 length=4095");
    }

    #[test]
    fn truncation_is_an_error() {
        for len in 0..LEN {
            assert_eq!(View::new(&BYTES[..len]).unwrap_err(), WireError::Truncated);
        }
    }

    #[test]
    fn kinds_are_the_eight_first_bytes_from_e0_on() {
        for byte in 0..=u8::MAX {
            let kind = Kind::of(byte);
            assert_eq!(kind.is_some(), (0xe0..=0xe7).contains(&byte));
            assert_eq!(kind.map(|kind| kind as u8).unwrap_or(byte), byte);
        }
    }

    proptest! {
        #[test]
        fn known_headers_round_trip_and_others_are_refused(mut bytes: [u8; LEN], known: bool) {
            if known {
                (bytes[0], bytes[1]) = (0xe0 | bytes[0] & 7, bytes[1] & 1);
            }
            match View::new(&bytes) {
                Ok(view) => {
                    let mut out = [0; LEN];
                    Repr::parse(&view).emit(&mut out);
                    prop_assert_eq!(out, bytes);
                }
                Err(error) => {
                    prop_assert!(!known);
                    prop_assert_eq!(error, WireError::UnknownMessage(bytes[0]));
                }
            }
        }
    }
}
