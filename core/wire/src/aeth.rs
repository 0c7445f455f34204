//! ACK extended transport header (AETH): an ACK with credits, or a NAK with its reason (IBTA volume 1,
//! chapters 9.3 and 9.7.5).
//!
//! ```text
//!  +-+---+---------+-----------------------------------------------+
//! 0|0|kind  value  |                      MSN                      |
//!  +-+---+---------+-----------------------------------------------+
//! ```
//!
//! The first byte is the *syndrome*: a zero bit, two bits of kind (00 ACK, 01 RNR NAK, 10 reserved, 11 NAK)
//! and five bits of value (credit count, RNR timer, NAK code). The message sequence number (MSN) counts the
//! requests that the responder has completed.

use core::fmt;

use zerocopy::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;

/// Length of the header in bytes.
pub const LEN: usize = 4;

/// Credit count that disables end-to-end flow control.
pub const NO_CREDITS: u8 = 0x1f;

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    syndrome_msn: U32,
}
const _: () = assert!(size_of::<Raw>() == LEN);

/// Bits of the message sequence number, below the syndrome.
const MSN_MASK: u32 = 0x00ff_ffff;
const SYNDROME_SHIFT: u32 = 24;

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

    /// Syndrome: ACK, RNR NAK or NAK with its reason.
    #[inline]
    pub fn syndrome(&self) -> Syndrome {
        Syndrome((self.0.syndrome_msn.get() >> SYNDROME_SHIFT) as u8)
    }

    /// Message sequence number, modulo 2^24.
    #[inline]
    pub fn msn(&self) -> u32 {
        self.0.syndrome_msn.get() & MSN_MASK
    }
}

/// The header as a value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Syndrome: ACK, RNR NAK or NAK with its reason.
    pub syndrome: Syndrome,
    /// Message sequence number, modulo 2^24; `emit` keeps 24 bits.
    pub msn: u32,
}

impl Repr {
    /// Converts a checked header into a value.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr { syndrome: view.syndrome(), msn: view.msn() }
    }

    /// Writes [`LEN`] bytes at the start of `out`. Panics if `out` is shorter.
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

/// The syndrome byte. Any byte is allowed; [`Syndrome::kind`] decodes it.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct Syndrome(pub u8);

/// The decoded meaning of a [`Syndrome`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// ACK: this packet and all earlier ones are acknowledged.
    Ack {
        /// Encoded end-to-end credits, 5 bits (an index into IBTA's credit table); [`NO_CREDITS`] if flow
        /// control is off.
        credits: u8,
    },
    /// RNR NAK: the responder has no receive posted, so the requester must wait and retry.
    Rnr {
        /// Code of the minimum time to wait, 5 bits (IBTA's RNR timer table).
        timer: u8,
    },
    /// NAK: the request is refused, for the reason in the code.
    Nak(NakCode),
    /// A reserved syndrome.
    Reserved,
}

impl Syndrome {
    const RNR: u8 = 0x20;
    const NAK: u8 = 0x60;

    /// Returns an ACK with encoded `credits` (low 5 bits).
    #[inline]
    pub const fn ack(credits: u8) -> Syndrome {
        Syndrome(credits & 0x1f)
    }

    /// Returns an RNR NAK with the `timer` code (low 5 bits).
    #[inline]
    pub const fn rnr(timer: u8) -> Syndrome {
        Syndrome(Syndrome::RNR | timer & 0x1f)
    }

    /// Returns a NAK.
    #[inline]
    pub const fn nak(code: NakCode) -> Syndrome {
        Syndrome(Syndrome::NAK | code.0 & 0x1f)
    }

    /// Decodes the syndrome.
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

/// Reason for which a request was refused (IBTA volume 1, chapter 9.7.5.2).
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct NakCode(pub u8);

impl NakCode {
    /// A packet is missing; the requester must retransmit from the PSN of the NAK.
    pub const PSN_SEQUENCE_ERROR: NakCode = NakCode(0);
    /// Invalid op-code, length or order of packets.
    pub const INVALID_REQUEST: NakCode = NakCode(1);
    /// Invalid key, or an access outside the range or rights of the key.
    pub const REMOTE_ACCESS_ERROR: NakCode = NakCode(2);
    /// The responder failed for an internal reason.
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

    crate::header::tests! {
        [0x60, 0x12, 0x34, 0x56] =>
            Repr { syndrome: Syndrome::nak(NakCode::PSN_SEQUENCE_ERROR), msn: 0x12_3456 }, "NAK PSN sequence error msn=1193046"
    }

    #[test]
    fn syndromes_as_linux_sends_them() {
        assert_eq!(Syndrome::ack(NO_CREDITS), Syndrome(0x1f));
        assert_eq!(Syndrome::rnr(12), Syndrome(0x2c));
        assert_eq!(Syndrome::nak(NakCode::REMOTE_ACCESS_ERROR), Syndrome(0x62));
    }

    /// Checks that of all 256 syndromes exactly those that a constructor returns are not reserved.
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
}
