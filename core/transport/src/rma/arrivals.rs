//! The bytes of an operation that have arrived.

use remora_wire::rma::{MAX_OPERATION, UNIT};

/// A bitmap of 64-byte units. Pieces may arrive in any order, and a duplicate is detected.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrivals(u64);

const _: () =
    assert!(MAX_OPERATION / UNIT == u64::BITS, "the bitmap has a bit for each unit of the longest operation");

/// Returns a mask of the lowest `units` bits.
#[inline]
const fn first(units: u32) -> u64 {
    if units >= u64::BITS { u64::MAX } else { (1 << units) - 1 }
}

impl Arrivals {
    /// The empty bitmap.
    pub const NONE: Arrivals = Arrivals(0);

    /// Returns the units of the piece `offset..offset + len` of an operation of `size` bytes. Returns `None`
    /// if the piece is invalid: it must start at a unit, and end at a unit or at the end of the operation.
    #[inline]
    fn units(size: u32, offset: u64, len: u32) -> Option<u64> {
        let offset = u32::try_from(offset).ok()?;
        let end = offset.checked_add(len)?;
        let whole = offset.is_multiple_of(UNIT) && (len.is_multiple_of(UNIT) || end == size);
        let fits = len > 0 && end <= size && size <= MAX_OPERATION;
        (whole && fits).then(|| first(end.div_ceil(UNIT)) & !first(offset / UNIT))
    }

    /// Returns true if the piece is valid and none of it has arrived before.
    #[inline]
    pub fn awaits(&self, size: u32, offset: u64, len: u32) -> bool {
        Arrivals::units(size, offset, len).is_some_and(|units| units & self.0 == 0)
    }

    /// Records that the piece was stored. Returns true if all bytes have arrived.
    #[inline]
    pub fn placed(&mut self, size: u32, offset: u64, len: u32) -> bool {
        self.0 |= Arrivals::units(size, offset, len).unwrap_or(0);
        self.is_complete(size)
    }

    /// Returns true if all `size` bytes have arrived.
    #[inline]
    pub fn is_complete(&self, size: u32) -> bool {
        self.0 == first(size.div_ceil(UNIT))
    }
}
