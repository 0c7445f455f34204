//! Base transport header (BTH), the first header of every packet (IBTA volume 1, chapter 9.2).
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

use crate::{Opcode, Psn, Qpn, WireError};

/// Length of the header in bytes.
pub const LEN: usize = crate::opcode::BTH_LEN;

/// Partition key of the default partition with full membership, as Linux Soft-RoCE sends it.
pub const DEFAULT_PKEY: u16 = 0xffff;

// Bits of the first word.
const OPCODE_SHIFT: u32 = 24;
const SOLICITED: u32 = 1 << 23;
const MIG_REQ: u32 = 1 << 22;
const PAD_SHIFT: u32 = 20;
const PAD_MASK: u8 = 0x03;
const TVER_SHIFT: u32 = 16;
const TVER_MASK: u8 = 0x0f;
// Bits of the second word, above the queue pair.
const FECN: u32 = 1 << 31;
const BECN: u32 = 1 << 30;
const RESV6_SHIFT: u32 = 24;
const RESV6_MASK: u8 = 0x3f;
// Bits of the third word, above the PSN.
const ACK_REQ: u32 = 1 << 31;
const RESV7_SHIFT: u32 = 24;
const RESV7_MASK: u8 = 0x7f;

/// The header as three words, so that it is read and written by three moves.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    kind: U32,
    destination: U32,
    sequence: U32,
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

    /// Returns the header as words.
    #[inline]
    pub fn words(&self) -> Words {
        let Raw { kind, destination, sequence } = self.0;
        Words { kind: kind.get(), destination: destination.get(), sequence: sequence.get() }
    }
}

/// The header as three words in host byte order. A field is decoded when it is read, because a queue pair
/// needs a few of them.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Words {
    kind: u32,
    destination: u32,
    sequence: u32,
}

impl Words {
    /// Op-code: the operation of the packet, which determines its extension headers.
    #[inline(always)]
    pub fn opcode(self) -> Opcode {
        Opcode((self.kind >> OPCODE_SHIFT) as u8)
    }

    /// True if the completion must raise a solicited event.
    #[inline(always)]
    pub fn solicited(self) -> bool {
        self.kind & SOLICITED != 0
    }

    /// Migration state of automatic path migration (MigReq); true means "migrated".
    #[inline(always)]
    pub fn mig_req(self) -> bool {
        self.kind & MIG_REQ != 0
    }

    /// Number of pad bytes between payload and ICRC, 0 to 3.
    #[inline(always)]
    pub fn pad(self) -> u8 {
        (self.kind >> PAD_SHIFT) as u8 & PAD_MASK
    }

    /// Transport header version, 4 bits; always 0.
    #[inline(always)]
    pub fn tver(self) -> u8 {
        (self.kind >> TVER_SHIFT) as u8 & TVER_MASK
    }

    /// Partition key; the highest bit means full membership.
    #[inline(always)]
    pub fn pkey(self) -> u16 {
        self.kind as u16
    }

    /// Forward explicit congestion notification (FECN).
    #[inline(always)]
    pub fn fecn(self) -> bool {
        self.destination & FECN != 0
    }

    /// Backward explicit congestion notification (BECN).
    #[inline(always)]
    pub fn becn(self) -> bool {
        self.destination & BECN != 0
    }

    /// The six reserved bits beside FECN and BECN.
    #[inline(always)]
    pub fn resv6(self) -> u8 {
        (self.destination >> RESV6_SHIFT) as u8 & RESV6_MASK
    }

    /// Destination queue pair number.
    #[inline(always)]
    pub fn dest_qp(self) -> Qpn {
        Qpn::new(self.destination)
    }

    /// AckReq: true if the requester requests an acknowledgement of this packet.
    #[inline(always)]
    pub fn ack_req(self) -> bool {
        self.sequence & ACK_REQ != 0
    }

    /// The seven reserved bits beside AckReq.
    #[inline(always)]
    pub fn resv7(self) -> u8 {
        (self.sequence >> RESV7_SHIFT) as u8 & RESV7_MASK
    }

    /// Packet sequence number.
    #[inline(always)]
    pub fn psn(self) -> Psn {
        Psn::new(self.sequence)
    }

    /// Returns true if the packet belongs to the default partition, and its transport header version is 0.
    #[inline(always)]
    pub fn is_default(self) -> bool {
        const FIELDS: u32 = (TVER_MASK as u32) << TVER_SHIFT | 0x7fff;
        self.kind & FIELDS == DEFAULT_PKEY as u32 & FIELDS
    }

    /// Returns the same header with another op-code.
    #[inline]
    pub fn with_opcode(self, opcode: Opcode) -> Words {
        Words { kind: self.kind & !(0xff << OPCODE_SHIFT) | u32::from(opcode.0) << OPCODE_SHIFT, ..self }
    }

    /// Returns all fields.
    #[inline]
    pub fn repr(self) -> Repr {
        Repr {
            opcode: self.opcode(),
            solicited: self.solicited(),
            mig_req: self.mig_req(),
            pad: self.pad(),
            tver: self.tver(),
            pkey: self.pkey(),
            fecn: self.fecn(),
            becn: self.becn(),
            resv6: self.resv6(),
            dest_qp: self.dest_qp(),
            ack_req: self.ack_req(),
            resv7: self.resv7(),
            psn: self.psn(),
        }
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.repr().fmt(f)
    }
}

/// The header as a value. It keeps all bits of the wire format, including reserved ones, so that
/// `Repr::parse` followed by `emit` reproduces any twelve bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Op-code: the operation of the packet, which determines its extension headers.
    pub opcode: Opcode,
    /// True if the completion must raise a solicited event.
    pub solicited: bool,
    /// Migration state of automatic path migration (MigReq); true means "migrated".
    pub mig_req: bool,
    /// Number of pad bytes between payload and ICRC, 0 to 3; `emit` keeps 2 bits.
    pub pad: u8,
    /// Transport header version, 4 bits; always 0; `emit` keeps 4 bits.
    pub tver: u8,
    /// Partition key; the highest bit means full membership.
    pub pkey: u16,
    /// Forward explicit congestion notification (FECN).
    pub fecn: bool,
    /// Backward explicit congestion notification (BECN).
    pub becn: bool,
    /// The six reserved bits beside FECN and BECN; `emit` keeps 6 bits.
    pub resv6: u8,
    /// Destination queue pair number.
    pub dest_qp: Qpn,
    /// AckReq: true if the requester requests an acknowledgement of this packet.
    pub ack_req: bool,
    /// The seven reserved bits beside AckReq; `emit` keeps 7 bits.
    pub resv7: u8,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Repr {
    /// Returns a header for the default partition without flags and pad, and with MigReq set as ConnectX
    /// does.
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

    /// Converts a checked header into a value.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        view.words().repr()
    }

    /// Writes [`LEN`] bytes at the start of `out`. Panics if `out` is shorter.
    #[inline(always)]
    pub fn emit(&self, out: &mut [u8]) {
        let bit = |set: bool, mask: u32| if set { mask } else { 0 };
        let field = |value: u8, mask: u8, shift: u32| u32::from(value & mask) << shift;
        let kind = u32::from(self.opcode.0) << OPCODE_SHIFT
            | bit(self.solicited, SOLICITED)
            | bit(self.mig_req, MIG_REQ)
            | field(self.pad, PAD_MASK, PAD_SHIFT)
            | field(self.tver, TVER_MASK, TVER_SHIFT)
            | u32::from(self.pkey);
        let destination = bit(self.fecn, FECN)
            | bit(self.becn, BECN)
            | field(self.resv6, RESV6_MASK, RESV6_SHIFT)
            | self.dest_qp.get();
        let sequence =
            bit(self.ack_req, ACK_REQ) | field(self.resv7, RESV7_MASK, RESV7_SHIFT) | self.psn.get();
        let (place, _) = Raw::mut_from_prefix(out).expect("space for a BTH");
        *place =
            Raw { kind: U32::new(kind), destination: U32::new(destination), sequence: U32::new(sequence) };
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

    // Each field differs from its neighbours and from zero.
    crate::header::tests! {
        [0x0a, 0xe3, 0x80, 0x01, 0x95, 0x12, 0x34, 0x56, 0xa2, 0xfe, 0xdc, 0xba] => VALUE,
        "RC RDMA WRITE Only qp=0x123456 psn=16702650 se ackreq fecn"
    }

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
    fn values_too_wide_do_not_spill() {
        let mut out = [0; LEN];
        Repr { pad: 0xff, tver: 0xff, resv6: 0xff, resv7: 0xff, ..VALUE }.emit(&mut out);
        let back = Repr::parse(&View::new(&out).unwrap());
        assert_eq!(back, Repr { pad: 3, tver: 15, resv6: 0x3f, resv7: 0x7f, ..VALUE });
    }
}
