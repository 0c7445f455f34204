//! Base transport header: first in every packet (IBTA volume 1, chapter 9.2).
//!
//! ```text
//!        0               1               2               3
//!  +---------------+-+-+---+-------+-------------------------------+
//! 0|    op-code    |S|M|pad|  TVer |             P_Key             |
//!  +-+-+-----------+-+-+---+-------+-------------------------------+
//! 4|F|B|   resv6   |                 destination QP                |
//!  +-+-+-----------+-----------------------------------------------+
//! 8|A|    resv7    |                      PSN                      |
//!  +-+-------------+-----------------------------------------------+
//! ```
//!
//! S: solicited event. M: MigReq. F, B: FECN and BECN (annex A17). A: acknowledge request. The ICRC does not
//! cover byte 4, because switches may set F and B.

use core::fmt;

use zerocopy::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::int24::MASK;
use crate::{Opcode, Psn, Qpn, WireError};

/// Bytes of the header.
pub const LEN: usize = 12;

/// The partition key of the default partition, full membership; what Linux Soft-RoCE sends.
pub const DEFAULT_PKEY: u16 = 0xffff;

const SOLICITED: u8 = 0x80;
const MIG_REQ: u8 = 0x40;
const PAD_SHIFT: u32 = 4;
const TVER_MASK: u8 = 0x0f;
const FECN: u8 = 0x80;
const BECN: u8 = 0x40;
const RESV6_MASK: u8 = 0x3f;
const ACK_REQ: u8 = 0x80;
const RESV7_MASK: u8 = 0x7f;

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    /// Op-code, flags, P_Key: whole words, because a word stored byte by byte stalls the load that follows.
    first: U32,
    /// Congestion bits, destination queue pair.
    second: U32,
    /// Acknowledge request, PSN.
    third: U32,
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

    #[inline]
    fn flags(&self) -> u8 {
        (self.0.first.get() >> 16) as u8
    }

    #[inline]
    fn congestion(&self) -> u8 {
        (self.0.second.get() >> 24) as u8
    }

    #[inline]
    fn ack(&self) -> u8 {
        (self.0.third.get() >> 24) as u8
    }

    /// Which operation this packet is a part of, and so which extension headers follow.
    #[inline]
    pub fn opcode(&self) -> Opcode {
        Opcode((self.0.first.get() >> 24) as u8)
    }

    /// Does the sender ask that the completion raise a solicited event?
    #[inline]
    pub fn solicited(&self) -> bool {
        self.flags() & SOLICITED != 0
    }

    /// Automatic path migration: set means "migrated".
    #[inline]
    pub fn mig_req(&self) -> bool {
        self.flags() & MIG_REQ != 0
    }

    /// Bytes of zeros between payload and ICRC, 0 to 3.
    #[inline]
    pub fn pad(&self) -> u8 {
        self.flags() >> PAD_SHIFT & 3
    }

    /// Transport header version, 4 bits; 0 is the only one there is.
    #[inline]
    pub fn tver(&self) -> u8 {
        self.flags() & TVER_MASK
    }

    /// Partition key; its top bit is full membership.
    #[inline]
    pub fn pkey(&self) -> u16 {
        self.0.first.get() as u16
    }

    /// Forward congestion notification.
    #[inline]
    pub fn fecn(&self) -> bool {
        self.congestion() & FECN != 0
    }

    /// Backward congestion notification.
    #[inline]
    pub fn becn(&self) -> bool {
        self.congestion() & BECN != 0
    }

    /// The six reserved bits beside FECN and BECN.
    #[inline]
    pub fn resv6(&self) -> u8 {
        self.congestion() & RESV6_MASK
    }

    /// The queue pair this packet is for.
    #[inline]
    pub fn dest_qp(&self) -> Qpn {
        Qpn::new(self.0.second.get() & MASK)
    }

    /// Does the requester want an acknowledgement of this packet?
    #[inline]
    pub fn ack_req(&self) -> bool {
        self.ack() & ACK_REQ != 0
    }

    /// The seven reserved bits beside AckReq.
    #[inline]
    pub fn resv7(&self) -> u8 {
        self.ack() & RESV7_MASK
    }

    /// Packet sequence number.
    #[inline]
    pub fn psn(&self) -> Psn {
        Psn::new(self.0.third.get() & MASK)
    }
}

/// The header as a value. It holds every bit of the wire, reserved ones too, so that
/// `Repr::parse` then `emit` is the identity on any twelve bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// See [`View::opcode`].
    pub opcode: Opcode,
    /// See [`View::solicited`].
    pub solicited: bool,
    /// See [`View::mig_req`].
    pub mig_req: bool,
    /// See [`View::pad`]; `emit` keeps 2 bits.
    pub pad: u8,
    /// See [`View::tver`]; `emit` keeps 4 bits.
    pub tver: u8,
    /// See [`View::pkey`].
    pub pkey: u16,
    /// See [`View::fecn`].
    pub fecn: bool,
    /// See [`View::becn`].
    pub becn: bool,
    /// See [`View::resv6`]; `emit` keeps 6 bits.
    pub resv6: u8,
    /// See [`View::dest_qp`].
    pub dest_qp: Qpn,
    /// See [`View::ack_req`].
    pub ack_req: bool,
    /// See [`View::resv7`]; `emit` keeps 7 bits.
    pub resv7: u8,
    /// See [`View::psn`].
    pub psn: Psn,
}

impl Repr {
    /// A packet of the default partition with no flag set, no pad, and MigReq as ConnectX and Remora send it.
    #[inline]
    pub const fn new(opcode: Opcode, dest_qp: Qpn, psn: Psn) -> Repr {
        Repr {
            opcode,
            solicited: false,
            mig_req: true,
            pad: 0,
            tver: 0,
            pkey: DEFAULT_PKEY,
            fecn: false,
            becn: false,
            resv6: 0,
            dest_qp,
            ack_req: false,
            resv7: 0,
            psn,
        }
    }

    /// The value of a checked header.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr {
            opcode: view.opcode(),
            solicited: view.solicited(),
            mig_req: view.mig_req(),
            pad: view.pad(),
            tver: view.tver(),
            pkey: view.pkey(),
            fecn: view.fecn(),
            becn: view.becn(),
            resv6: view.resv6(),
            dest_qp: view.dest_qp(),
            ack_req: view.ack_req(),
            resv7: view.resv7(),
            psn: view.psn(),
        }
    }

    /// Writes [`LEN`] bytes at the start of `out`; panics if there is no room.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let bit = |set: bool, mask: u8| if set { mask } else { 0 };
        let flags = bit(self.solicited, SOLICITED)
            | bit(self.mig_req, MIG_REQ)
            | (self.pad & 3) << PAD_SHIFT
            | self.tver & TVER_MASK;
        let congestion = bit(self.fecn, FECN) | bit(self.becn, BECN) | self.resv6 & RESV6_MASK;
        let ack = bit(self.ack_req, ACK_REQ) | self.resv7 & RESV7_MASK;
        let word = |tag: u8, value: u32| U32::new(u32::from(tag) << 24 | value & MASK);
        let (raw, _) = Raw::mut_from_prefix(out).expect("room for a BTH");
        *raw = Raw {
            first: word(self.opcode.0, u32::from(flags) << 16 | u32::from(self.pkey)),
            second: word(congestion, self.dest_qp.get()),
            third: word(ack, self.psn.get()),
        };
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} qp={} psn={}", self.opcode, self.dest_qp, self.psn)?;
        let flags =
            [(self.solicited, " se"), (self.ack_req, " ackreq"), (self.fecn, " fecn"), (self.becn, " becn")];
        flags.iter().filter(|(set, _)| *set).try_for_each(|(_, name)| f.write_str(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every field differs from its neighbours and from zero.
    const BYTES: [u8; LEN] = [0x0a, 0xe3, 0x80, 0x01, 0x95, 0x12, 0x34, 0x56, 0xa2, 0xfe, 0xdc, 0xba];

    const VALUE: Repr = Repr {
        opcode: Opcode::RC_RDMA_WRITE_ONLY,
        solicited: true,
        mig_req: true,
        pad: 2,
        tver: 3,
        pkey: 0x8001,
        fecn: true,
        becn: false,
        resv6: 0x15,
        dest_qp: Qpn::new(0x12_3456),
        ack_req: true,
        resv7: 0x22,
        psn: Psn::new(0xfe_dcba),
    };

    #[test]
    fn literal_bytes() {
        assert_eq!(Repr::parse(&View::new(&BYTES).unwrap()), VALUE);
        let mut out = [0x5a; LEN + 1];
        VALUE.emit(&mut out);
        assert_eq!((&out[..LEN], out[LEN]), (&BYTES[..], 0x5a));
        assert_eq!(VALUE.to_string(), "RC RDMA WRITE Only qp=0x123456 psn=16702650 se ackreq fecn");
    }

    #[test]
    fn truncation_is_an_error() {
        for len in 0..LEN {
            assert_eq!(View::new(&BYTES[..len]).unwrap_err(), WireError::Truncated);
        }
    }

    #[test]
    fn values_too_wide_do_not_spill() {
        let mut out = [0; LEN];
        Repr { pad: 0xff, tver: 0xff, resv6: 0xff, resv7: 0xff, ..VALUE }.emit(&mut out);
        let back = Repr::parse(&View::new(&out).unwrap());
        assert_eq!(back, Repr { pad: 3, tver: 15, resv6: 0x3f, resv7: 0x7f, ..VALUE });
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
