//! The additions of PRISM to RoCE packets (PRISM paper, §3 and §4.2; `docs/WIRE.md` draws all of it).
//!
//! It takes no op-codes but those of a [`bundle`], a [`chain`] and its answer. The seven bits beside AckReq,
//! reserved elsewhere, are [`Flags`]; a packet with none of them set is the plain verb. Addresses beyond
//! those of the standard headers stand in [`addresses`], behind the op-code's own extension headers. Behind
//! those, [`operands`] has the masks and wide operands of an extended atomic. IRN adds nothing to a packet
//! with a flag. The outcome of an operation is a [`Verdict`], in the credits of its response's AETH: NAKs are
//! for faults.

pub mod addresses;
pub mod bundle;
pub mod chain;
pub mod operands;

use crate::Syndrome;
use crate::aeth::{Kind, NO_CREDITS};

/// First byte of the window by which a connection names its own scratch memory on the peer's NIC. These
/// addresses are the last of the address space. They mean scratch under every key, and need none.
pub const SCRATCH: u64 = u64::MAX - (SCRATCH_LEN as u64 - 1);
/// Bytes of a connection's scratch memory (§4.2: 32 bytes suffice).
pub const SCRATCH_LEN: usize = 32;

/// The bits beside AckReq.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(u8);

impl Flags {
    /// A plain verb.
    pub const NONE: Flags = Flags(0);
    /// The target address is that of a pointer to the target.
    pub const ADDR_INDIRECT: Flags = Flags(0x40);
    /// Behind that pointer stands a bound, which limits the length.
    pub const ADDR_BOUNDED: Flags = Flags(0x20);
    /// The data, or the operand, stands at the responder.
    pub const DATA_INDIRECT: Flags = Flags(0x10);
    /// Executed only if the operation before was successful.
    pub const CONDITIONAL: Flags = Flags(0x08);
    /// The output goes to an address at the responder, not to the requester.
    pub const REDIRECT: Flags = Flags(0x04);
    /// A WRITE whose target is a buffer taken from a free list.
    pub const ALLOCATE: Flags = Flags(0x02);
    /// An atomic with masks, and of up to 32 bytes.
    pub const EXTENDED: Flags = Flags(0x01);

    /// The flags in the low seven bits.
    #[inline]
    pub const fn from_bits(bits: u8) -> Flags {
        Flags(bits & 0x7f)
    }

    /// As on the wire.
    #[inline]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Is each of `others` set?
    #[inline]
    pub const fn has(self, others: Flags) -> bool {
        self.0 & others.0 == others.0
    }

    /// Is any of `others` set?
    #[inline]
    pub const fn any(self, others: Flags) -> bool {
        self.0 & others.0 != 0
    }

    /// These and `others`.
    #[inline]
    pub const fn and(self, others: Flags) -> Flags {
        Flags(self.0 | others.0)
    }
}

/// How an operation of PRISM ended. Not a fault: the queue pair lives on.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// As asked. What is conditional on it is executed.
    #[default]
    Done = 0,
    /// A compare-and-swap whose comparison failed.
    NotSwapped = 1,
    /// Conditional on an operation that did not succeed: nothing was done.
    Skipped = 2,
    /// The free list had no buffer.
    NoBuffer = 3,
    /// Longer than the free list's buffers: none was taken.
    TooLong = 4,
}

impl Verdict {
    /// All of them, by number.
    pub const ALL: [Verdict; 5] =
        [Verdict::Done, Verdict::NotSwapped, Verdict::Skipped, Verdict::NoBuffer, Verdict::TooLong];

    /// By its number, if that is one.
    pub fn from_number(number: u32) -> Option<Verdict> {
        Verdict::ALL.get(number as usize).copied()
    }

    /// The credits that a response carries. Success is "none kept", as in a plain responder's answer; all
    /// others are the number.
    #[inline]
    pub const fn credits(self) -> u8 {
        match self {
            Verdict::Done => NO_CREDITS,
            other => other as u8,
        }
    }

    /// The verdict in the syndrome of a response; None: it is no such response.
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
