//! The fields that PRISM adds to RoCE packets (PRISM paper, §3 and §4.2). `docs/reference/wire/offloads.md`
//! shows their layout.
//!
//! PRISM uses the op-codes of the plain verbs, and own ones only for a [`bundle`], an [`operation_list`] and
//! its answer. The seven bits beside AckReq, reserved elsewhere, are [`Flags`]; a packet without flags is the
//! plain verb. [`addresses`] beyond those of the standard headers follow the extension headers of the
//! op-code. The masks and wide [`operands`] of an extended atomic follow the addresses. IRN adds nothing to a
//! packet with flags. The result of an operation is a [`Verdict`], encoded in the AETH credits of its
//! response; NAKs report faults only.

pub mod addresses;
pub mod bundle;
pub mod operands;
pub mod operation_list;

use crate::Syndrome;
use crate::aeth::{Kind, NO_CREDITS};

/// First address of the range that denotes the connection's own scratch memory on the peer's NIC. The range
/// is the end of the address space. It denotes scratch memory under any key.
pub const SCRATCH: u64 = u64::MAX - (SCRATCH_LEN as u64 - 1);
/// Length of a connection's scratch memory in bytes (§4.2: 32 bytes suffice).
pub const SCRATCH_LEN: usize = 32;

/// The PRISM flags, in the seven BTH bits beside AckReq.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(u8);

impl Flags {
    /// No flag: a plain verb.
    pub const NONE: Flags = Flags(0);
    /// The target address is the address of a pointer to the target.
    pub const ADDR_INDIRECT: Flags = Flags(0x40);
    /// The pointer is followed by a bound, which limits the length.
    pub const ADDR_BOUNDED: Flags = Flags(0x20);
    /// The data or the operand is in the responder's memory.
    pub const DATA_INDIRECT: Flags = Flags(0x10);
    /// The operation is executed only if the previous one succeeded.
    pub const CONDITIONAL: Flags = Flags(0x08);
    /// The output is written to an address at the responder instead of being returned.
    pub const REDIRECT: Flags = Flags(0x04);
    /// ALLOCATE: a WRITE into a buffer taken from a free list.
    pub const ALLOCATE: Flags = Flags(0x02);
    /// An atomic with masks and operands of up to 32 bytes.
    pub const EXTENDED: Flags = Flags(0x01);

    /// Returns the flags in the low seven bits of `bits`.
    #[inline]
    pub const fn from_bits(bits: u8) -> Flags {
        Flags(bits & 0x7f)
    }

    /// Returns the flags as on the wire.
    #[inline]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns true if all of `others` are set.
    #[inline]
    pub const fn has(self, others: Flags) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns true if any of `others` is set.
    #[inline]
    pub const fn any(self, others: Flags) -> bool {
        self.0 & others.0 != 0
    }

    /// Returns the union of both sets.
    #[inline]
    pub const fn and(self, others: Flags) -> Flags {
        Flags(self.0 | others.0)
    }
}

/// Result of a PRISM operation. None of the results ends the queue pair.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// The operation succeeded; a conditional operation after it is executed.
    #[default]
    Done = 0,
    /// The comparison of a compare-and-swap failed.
    NotSwapped = 1,
    /// The operation was conditional and the previous one did not succeed, so nothing was done.
    Skipped = 2,
    /// The free list was empty.
    NoBuffer = 3,
    /// The data was longer than the buffers of the free list, so none was taken.
    TooLong = 4,
}

impl Verdict {
    /// All values, in numeric order.
    pub const ALL: [Verdict; 5] =
        [Verdict::Done, Verdict::NotSwapped, Verdict::Skipped, Verdict::NoBuffer, Verdict::TooLong];

    /// Returns the value with this number, or `None`.
    pub fn from_number(number: u32) -> Option<Verdict> {
        Verdict::ALL.get(number as usize).copied()
    }

    /// Returns the AETH credits that encode this result. Success is [`NO_CREDITS`], as in a plain
    /// responder's answer; other results use their number.
    #[inline]
    pub const fn credits(self) -> u8 {
        match self {
            Verdict::Done => NO_CREDITS,
            other => other as u8,
        }
    }

    /// Decodes the syndrome of a response, or returns `None` if it encodes no result.
    #[inline]
    pub fn of(syndrome: Syndrome) -> Option<Verdict> {
        match syndrome.kind() {
            Kind::Ack { credits: NO_CREDITS } => Some(Verdict::Done),
            Kind::Ack { credits: 0 } => None,
            Kind::Ack { credits } => Verdict::from_number(u32::from(credits)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seven_flags_fill_the_seven_bits() {
        let all = [
            Flags::ADDR_INDIRECT,
            Flags::ADDR_BOUNDED,
            Flags::DATA_INDIRECT,
            Flags::CONDITIONAL,
            Flags::REDIRECT,
            Flags::ALLOCATE,
            Flags::EXTENDED,
        ];
        let together = all.into_iter().fold(Flags::NONE, Flags::and);
        assert_eq!((together.bits(), Flags::from_bits(0xff)), (0x7f, together));
        assert!(all.iter().all(|flag| flag.bits().count_ones() == 1 && together.has(*flag)));
        assert!(!Flags::CONDITIONAL.any(Flags::REDIRECT) && !Flags::CONDITIONAL.has(together));
    }

    #[test]
    fn the_scratch_window_is_the_end_of_the_address_space() {
        assert_eq!(SCRATCH, 0xffff_ffff_ffff_ffe0);
        assert_eq!(SCRATCH.wrapping_add(SCRATCH_LEN as u64), 0);
    }

    #[test]
    fn every_verdict_has_credits_of_its_own_and_no_other_syndrome_is_one() {
        for verdict in Verdict::ALL {
            assert_eq!(Verdict::of(Syndrome::ack(verdict.credits())), Some(verdict));
            assert_eq!(Verdict::from_number(verdict as u32), Some(verdict));
        }
        let meant = (0..=255).filter(|byte| Verdict::of(Syndrome(*byte)).is_some()).count();
        assert_eq!((meant, Verdict::from_number(5)), (Verdict::ALL.len(), None));
    }
}
