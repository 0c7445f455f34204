//! ACK extended transport header: acknowledgement, credits, or a NAK with its reason (IBTA volume 1, chapters
//! 9.3 and 9.7.5).
//!
//! ```text
//!  +-+---+---------+-----------------------------------------------+
//! 0|0|kind  value  |                      MSN                      |
//!  +-+---+---------+-----------------------------------------------+
//! ```
//!
//! The first byte is the *syndrome*: a zero bit, two bits of kind (00 ACK, 01 RNR NAK, 10 reserved, 11 NAK)
//! and five bits of value (credit count, RNR timer, NAK code). The MSN counts requests that the responder
//! completed.

use core::fmt;

use zerocopy::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;

/// Bytes of the header.
pub const LEN: usize = 4;

/// The credit count that means "no end-to-end flow control".
pub const NO_CREDITS: u8 = 0x1f;

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    syndrome_msn: U32,
}
const _: () = assert!(size_of::<Raw>() == LEN);

/// The message sequence number's bits, below the syndrome's.
const MSN_MASK: u32 = 0x00ff_ffff;
const SYNDROME_SHIFT: u32 = 24;

/// A header whose length has been checked.
#[derive(Copy, Clone, Debug)]
pub struct View<'a>(&'a Raw);

impl<'a> View<'a> {
    /// The header at the start of `bytes`; [`WireError::Truncated`] below [`LEN`] bytes.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        Raw::ref_from_prefix(bytes).map(|(raw, _)| View(raw)).map_err(|_| WireError::Truncated)
    }

    /// Acknowledged, and if not, why.
    #[inline]
    pub fn syndrome(&self) -> Syndrome {
        Syndrome((self.0.syndrome_msn.get() >> SYNDROME_SHIFT) as u8)
    }

    /// Message sequence number: 24 bits, circular.
    #[inline]
    pub fn msn(&self) -> u32 {
        self.0.syndrome_msn.get() & MSN_MASK
    }
}

/// The header as a value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Acknowledged, and if not, why.
    pub syndrome: Syndrome,
    /// Message sequence number: 24 bits, circular; `emit` keeps 24 bits.
    pub msn: u32,
}

impl Repr {
    /// The value of a checked header.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr { syndrome: view.syndrome(), msn: view.msn() }
    }

    /// Writes [`LEN`] bytes at the start of `out`; panics if it is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let word = u32::from(self.syndrome.0) << SYNDROME_SHIFT | self.msn & MSN_MASK;
        let (place, _) = Raw::mut_from_prefix(out).expect("space for an AETH");
        *place = Raw { syndrome_msn: U32::new(word) };
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} msn={}", self.syndrome, self.msn)
    }
}

/// The syndrome byte; every value is representable, [`Syndrome::kind`] decodes it.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct Syndrome(pub u8);

/// What a [`Syndrome`] means.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The packet, and all before it, are acknowledged.
    Ack {
        /// Encoded end-to-end credits, 5 bits (IBTA's credit table, not a plain count); [`NO_CREDITS`]: none
        /// kept.
        credits: u8,
    },
    /// The receiver has no receive posted: wait and try again.
    Rnr {
        /// Code of the least time to wait, 5 bits (IBTA's RNR timer table).
        timer: u8,
    },
    /// The request is refused; the code has the reason.
    Nak(NakCode),
    /// A syndrome that the specification leaves undefined.
    Reserved,
}

impl Syndrome {
    const RNR: u8 = 0x20;
    const NAK: u8 = 0x60;

    /// An acknowledgement with encoded `credits` (low 5 bits).
    #[inline]
    pub const fn ack(credits: u8) -> Syndrome {
        Syndrome(credits & 0x1f)
    }

    /// "Receiver not ready", with the RNR `timer` code (low 5 bits).
    #[inline]
    pub const fn rnr(timer: u8) -> Syndrome {
        Syndrome(Syndrome::RNR | timer & 0x1f)
    }

    /// A negative acknowledgement.
    #[inline]
    pub const fn nak(code: NakCode) -> Syndrome {
        Syndrome(Syndrome::NAK | code.0 & 0x1f)
    }

    /// What this syndrome means.
    #[inline]
    pub const fn kind(self) -> Kind {
        let value = self.0 & 0x1f;
        match self.0 & 0xe0 {
            0 => Kind::Ack { credits: value },
            Syndrome::RNR => Kind::Rnr { timer: value },
            Syndrome::NAK if value <= NakCode::INVALID_RD_REQUEST.0 => Kind::Nak(NakCode(value)),
            _ => Kind::Reserved,
        }
    }
}

impl fmt::Debug for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Syndrome({:#04x})", self.0)
    }
}

impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            Kind::Ack { credits: NO_CREDITS } => f.write_str("ACK"),
            Kind::Ack { credits } => write!(f, "ACK credits={credits}"),
            Kind::Rnr { timer } => write!(f, "RNR NAK timer={timer}"),
            Kind::Nak(code) => write!(f, "NAK {code}"),
            Kind::Reserved => write!(f, "reserved syndrome {:#04x}", self.0),
        }
    }
}

/// Why a request was refused (IBTA volume 1, chapter 9.7.5.2).
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct NakCode(pub u8);

impl NakCode {
    /// A packet is missing: resend from the PSN of the NAK.
    pub const PSN_SEQUENCE_ERROR: NakCode = NakCode(0);
    /// An op-code, length or order that the responder cannot accept.
    pub const INVALID_REQUEST: NakCode = NakCode(1);
    /// Wrong key, or bytes outside what the key allows.
    pub const REMOTE_ACCESS_ERROR: NakCode = NakCode(2);
    /// The responder could not finish for reasons of its own.
    pub const REMOTE_OPERATIONAL_ERROR: NakCode = NakCode(3);
    /// Reliable datagram only; never sent by Remora.
    pub const INVALID_RD_REQUEST: NakCode = NakCode(4);
}

impl fmt::Debug for NakCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NakCode({})", self.0)
    }
}

impl fmt::Display for NakCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            NakCode::PSN_SEQUENCE_ERROR => f.write_str("PSN sequence error"),
            NakCode::INVALID_REQUEST => f.write_str("invalid request"),
            NakCode::REMOTE_ACCESS_ERROR => f.write_str("remote access error"),
            NakCode::REMOTE_OPERATIONAL_ERROR => f.write_str("remote operational error"),
            NakCode::INVALID_RD_REQUEST => f.write_str("invalid RD request"),
            NakCode(code) => write!(f, "code {code:#04x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: [u8; LEN] = [0x60, 0x12, 0x34, 0x56];
    const VALUE: Repr = Repr { syndrome: Syndrome::nak(NakCode::PSN_SEQUENCE_ERROR), msn: 0x12_3456 };

    #[test]
    fn literal_bytes() {
        assert_eq!(Repr::parse(&View::new(&BYTES).unwrap()), VALUE);
        let mut out = [0x5a; LEN + 1];
        VALUE.emit(&mut out);
        assert_eq!((&out[..LEN], out[LEN]), (&BYTES[..], 0x5a));
        assert_eq!(VALUE.to_string(), "NAK PSN sequence error msn=1193046");
    }

    #[test]
    fn truncation_is_an_error() {
        for len in 0..LEN {
            assert_eq!(View::new(&BYTES[..len]).unwrap_err(), WireError::Truncated);
        }
    }

    #[test]
    fn syndromes_as_linux_sends_them() {
        assert_eq!(Syndrome::ack(NO_CREDITS), Syndrome(0x1f));
        assert_eq!(Syndrome::rnr(12), Syndrome(0x2c));
        assert_eq!(Syndrome::nak(NakCode::REMOTE_ACCESS_ERROR), Syndrome(0x62));
    }

    /// All 256 syndromes: exactly those that a constructor makes have a meaning.
    #[test]
    fn every_syndrome_has_one_kind() {
        let mut reserved = 0;
        for byte in 0..=255 {
            let made = match Syndrome(byte).kind() {
                Kind::Ack { credits } => Syndrome::ack(credits),
                Kind::Rnr { timer } => Syndrome::rnr(timer),
                Kind::Nak(code) => Syndrome::nak(code),
                Kind::Reserved => {
                    reserved += 1;
                    continue;
                }
            };
            assert_eq!(made, Syndrome(byte));
        }
        assert_eq!(reserved, 256 - 32 - 32 - 5);
    }

    proptest! {
        #[test]
        fn any_bytes_round_trip(bytes: [u8; LEN]) {
            let mut out = [0; LEN];
            Repr::parse(&View::new(&bytes).unwrap()).emit(&mut out);
            prop_assert_eq!(out, bytes);
        }
    }
}
