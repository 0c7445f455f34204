//! Operands of an extended atomic (PRISM): mode, size, masks, and the operands that do not fit the
//! AtomicETH.
//!
//! ```text
//!   +---------------+---------------+---------------+---------------+
//!  0|     mode      |     size      |  where: C, S  |       0       |
//!   +---------------+---------------+---------------+---------------+
//!  4|  compare mask, of a FetchAdd the highest bit of each field    |  size bytes
//!   +---------------------------------------------------------------+
//!   |  swap mask (CmpSwap only)                                     |  size bytes
//!   +---------------------------------------------------------------+
//!   |  compare (CmpSwap, wide and immediate)                        |  size bytes
//!   +---------------------------------------------------------------+
//!   |  swap or add (wide and immediate)                             |  size bytes
//!   +---------------------------------------------------------------+
//! ```
//!
//! Size is 8, 16 or 32. Bit 0 of *where* (C) is set if the compare operand is in the responder's memory, bit
//! 1 (S) if the swap or add operand is. The fields of the AtomicETH hold the address of such an operand, an
//! operand of 8 bytes, or zero. Numbers of every width are in network byte order.

use super::Flags;
use crate::{WireError, atomic_eth};

/// Maximum length in bytes: the head and four values of 32 bytes.
pub const MAX_LEN: usize = HEAD + 4 * 32;
const HEAD: usize = 4;

/// A number of up to 32 bytes as four limbs, least significant first. Unused limbs are zero.
pub type Number = [u64; 4];

/// The condition of a compare-and-swap: the relation of the masked operand to the masked target.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// Equal to the target.
    #[default]
    Equal = 0,
    /// Not equal to the target.
    NotEqual = 1,
    /// Less than the target.
    Less = 2,
    /// Less than or equal to the target.
    LessEqual = 3,
    /// Greater than the target (§7.3, §8.2).
    Greater = 4,
    /// Greater than or equal to the target.
    GreaterEqual = 5,
}

impl Mode {
    /// All values, in numeric order.
    pub const ALL: [Mode; 6] =
        [Mode::Equal, Mode::NotEqual, Mode::Less, Mode::LessEqual, Mode::Greater, Mode::GreaterEqual];

    /// Returns the value with this number, or `None`.
    pub fn from_number(number: u8) -> Option<Mode> {
        Mode::ALL.get(usize::from(number)).copied()
    }

    /// Returns true if `operand` and `target` satisfy the condition.
    #[inline]
    pub fn holds(self, operand: &Number, target: &Number) -> bool {
        let order = operand.iter().rev().cmp(target.iter().rev());
        match self {
            Mode::Equal => order.is_eq(),
            Mode::NotEqual => order.is_ne(),
            Mode::Less => order.is_lt(),
            Mode::LessEqual => order.is_le(),
            Mode::Greater => order.is_gt(),
            Mode::GreaterEqual => order.is_ge(),
        }
    }
}

/// An operand, or its address in the responder's memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The number itself.
    Immediate(Number),
    /// Address of the number in the responder's memory.
    At(u64),
}

impl Default for Operand {
    fn default() -> Operand {
        Operand::Immediate([0; 4])
    }
}

/// The operands of an extended atomic.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Condition of a compare-and-swap; [`Mode::Equal`] for a fetch-and-add.
    pub mode: Mode,
    /// Length of the target in bytes: 8, 16 or 32.
    pub size: u8,
    /// Bits that are compared. For a fetch-and-add, the highest bit of each field, beyond which nothing is
    /// carried.
    pub compare_mask: Number,
    /// Bits that are swapped; zero for a fetch-and-add.
    pub swap_mask: Number,
    /// Operand that is compared; unused by a fetch-and-add.
    pub compare: Operand,
    /// New value, or addend.
    pub swap_add: Operand,
}

const COMPARE_AT: u8 = 1;
const SWAP_AT: u8 = 2;

impl Repr {
    /// Parses the operands of a CmpSwap (if `swaps`) or FetchAdd. `eth` is the AtomicETH of the packet,
    /// `bytes` the bytes after its addresses.
    ///
    /// # Errors
    /// [`WireError::Truncated`], or [`WireError::Length`] for excess bytes and for invalid values.
    pub fn parse(swaps: bool, flags: Flags, eth: &atomic_eth::Repr, bytes: &[u8]) -> Result<Repr, WireError> {
        let Some((&[mode, size, indirections, zero], rest)) = bytes.split_first_chunk() else {
            return Err(WireError::Truncated);
        };
        let indirect = |bit: u8| indirections & bit != 0;
        let known = indirections & !(COMPARE_AT | SWAP_AT) == 0 && zero == 0 && matches!(size, 8 | 16 | 32);
        let fits = (indirections != 0) == flags.has(Flags::DATA_INDIRECT)
            && (swaps || mode == 0 && !indirect(COMPARE_AT) && eth.compare == 0);
        let mode = Mode::from_number(mode).filter(|_| known && fits).ok_or(WireError::Length)?;
        let mut reader = Reader { rest, size: usize::from(size) };
        let compare_mask = reader.number()?;
        let swap_mask = if swaps { reader.number()? } else { [0; 4] };
        let compare =
            if swaps { reader.operand(eth.compare, indirect(COMPARE_AT))? } else { Operand::default() };
        let swap_add = reader.operand(eth.swap_add, indirect(SWAP_AT))?;
        if reader.rest.is_empty() {
            return Ok(Repr { mode, size, compare_mask, swap_mask, compare, swap_add });
        }
        Err(WireError::Length)
    }

    /// Writes the operands at the start of `out`, which must follow the addresses. Returns their length and
    /// the compare and swap fields of the AtomicETH. Panics if `out` is shorter ([`MAX_LEN`] is enough) or
    /// the size is invalid.
    pub fn emit(&self, swaps: bool, out: &mut [u8]) -> (usize, u64, u64) {
        // With a constant size, a number is written by a fixed number of moves.
        match self.size {
            8 => self.emit_sized::<8>(swaps, out),
            16 => self.emit_sized::<16>(swaps, out),
            32 => self.emit_sized::<32>(swaps, out),
            _ => panic!("the size of an operand is 8, 16 or 32 bytes"),
        }
    }

    #[inline(always)]
    fn emit_sized<const SIZE: usize>(&self, swaps: bool, out: &mut [u8]) -> (usize, u64, u64) {
        let bit = |operand: &Operand, bit: u8| if let Operand::At(_) = operand { bit } else { 0 };
        let indirections =
            if swaps { bit(&self.compare, COMPARE_AT) } else { 0 } | bit(&self.swap_add, SWAP_AT);
        out[..HEAD].copy_from_slice(&[self.mode as u8, self.size, indirections, 0]);
        let mut writer = Writer::<SIZE> { out, position: HEAD };
        writer.number(&self.compare_mask);
        let mut compare = 0;
        if swaps {
            writer.number(&self.swap_mask);
            compare = writer.operand(&self.compare);
        }
        let swap_add = writer.operand(&self.swap_add);
        (writer.position, compare, swap_add)
    }

    /// Returns the number of bytes that [`emit`](Repr::emit) writes.
    #[inline]
    pub fn len(&self, swaps: bool) -> usize {
        let wide = |operand: &Operand| self.size > 8 && matches!(operand, Operand::Immediate(_));
        let numbers = match swaps {
            true => 2 + usize::from(wide(&self.compare)) + usize::from(wide(&self.swap_add)),
            false => 1 + usize::from(wide(&self.swap_add)),
        };
        HEAD + numbers * usize::from(self.size)
    }

    /// Returns true if an operand is in the responder's memory.
    pub fn is_indirect(&self) -> bool {
        matches!((self.compare, self.swap_add), (Operand::At(_), _) | (_, Operand::At(_)))
    }
}

/// Returns the largest possible width of an atomic with `len` bytes after its addresses: 8, 16 or 32. The
/// width is not unique, because two immediate operands of 16 bytes are as long as two masks of 32 bytes.
#[inline]
pub const fn size_at_most(swaps: bool, len: usize) -> usize {
    let masks = if swaps { 2 } else { 1 };
    match len {
        _ if len >= HEAD + masks * 32 => 32,
        _ if len >= HEAD + masks * 16 => 16,
        _ => 8,
    }
}

/// Reads a number of at most 32 bytes in network byte order.
#[inline]
pub fn number(bytes: &[u8]) -> Number {
    // The usual sizes need no loop.
    match bytes.as_chunks() {
        (&[low], []) => [u64::from_be_bytes(low), 0, 0, 0],
        (&[second, low], []) => [u64::from_be_bytes(low), u64::from_be_bytes(second), 0, 0],
        (&[fourth, third, second, low], []) => [low, second, third, fourth].map(u64::from_be_bytes),
        _ => odd_number(bytes),
    }
}

fn odd_number(bytes: &[u8]) -> Number {
    let mut limbs = [0; 4];
    for (limb, bytes) in limbs.iter_mut().zip(bytes.rchunks(8)) {
        *limb = match bytes.try_into() {
            Ok(whole) => u64::from_be_bytes(whole),
            Err(_) => bytes.iter().fold(0, |limb, byte| limb << 8 | u64::from(*byte)),
        };
    }
    limbs
}

/// Writes a number in network byte order over all of `out`, at most 32 bytes.
#[inline]
pub fn put(number: &Number, out: &mut [u8]) {
    let limbs = number.map(u64::to_be_bytes);
    match out.as_chunks_mut() {
        ([low], []) => *low = limbs[0],
        ([second, low], []) => (*second, *low) = (limbs[1], limbs[0]),
        ([fourth, third, second, low], []) => {
            (*fourth, *third, *second, *low) = (limbs[3], limbs[2], limbs[1], limbs[0]);
        }
        _ => put_odd(number, out),
    }
}

fn put_odd(number: &Number, out: &mut [u8]) {
    for (limb, bytes) in number.iter().zip(out.rchunks_mut(8)) {
        let whole = limb.to_be_bytes();
        match <&mut [u8; 8]>::try_from(&mut *bytes) {
            Ok(place) => *place = whole,
            Err(_) => bytes.copy_from_slice(&whole[whole.len() - bytes.len()..]),
        }
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    size: usize,
}

impl Reader<'_> {
    #[inline]
    fn number(&mut self) -> Result<Number, WireError> {
        let (mine, rest) = self.rest.split_at_checked(self.size).ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(number(mine))
    }

    fn operand(&mut self, field: u64, indirect: bool) -> Result<Operand, WireError> {
        match (indirect, self.size) {
            (true, _) => Ok(Operand::At(field)),
            (false, 8) => Ok(Operand::Immediate([field, 0, 0, 0])),
            (false, _) if field == 0 => Ok(Operand::Immediate(self.number()?)),
            (false, _) => Err(WireError::Length),
        }
    }
}

/// Writer of numbers of `SIZE` bytes.
struct Writer<'a, const SIZE: usize> {
    out: &'a mut [u8],
    position: usize,
}

impl<const SIZE: usize> Writer<'_, SIZE> {
    #[inline(always)]
    fn number(&mut self, number: &Number) {
        put(number, &mut self.out[self.position..self.position + SIZE]);
        self.position += SIZE;
    }

    /// Writes an operand if it does not fit the AtomicETH, and returns the value of the AtomicETH's field.
    #[inline(always)]
    fn operand(&mut self, operand: &Operand) -> u64 {
        match operand {
            Operand::At(address) => *address,
            Operand::Immediate([low, ..]) if SIZE == 8 => *low,
            Operand::Immediate(number) => {
                self.number(number);
                0
            }
        }
    }
}

#[cfg(test)]
mod tests;
