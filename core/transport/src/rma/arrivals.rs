//! Which bytes of an operation have arrived.

use remora_wire::rma::{MAX_OPERATION, UNIT};

/// A map of 64-byte units: pieces may come in any order, and one that comes twice counts once.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrivals(u64);

const _: () = assert!(MAX_OPERATION / UNIT == u64::BITS, "a bit for each unit of the longest operation");

/// The first `units` bits.
#[inline]
const fn first(units: u32) -> u64 {
    if units >= u64::BITS { u64::MAX } else { (1 << units) - 1 }
}

impl Arrivals {
    /// Nothing has arrived.
    pub const NONE: Arrivals = Arrivals(0);

    /// The units of the piece `offset..offset + len` of an operation of `size` bytes. None: it is no piece of
    /// it. It must begin at a unit, and may end inside one only where the operation ends.
    #[inline]
    fn units(size: u32, offset: u64, len: u32) -> Option<u64> {
        let offset = u32::try_from(offset).ok()?;
        let end = offset.checked_add(len)?;
        let whole = offset.is_multiple_of(UNIT) && (len.is_multiple_of(UNIT) || end == size);
        let fits = len > 0 && end <= size && size <= MAX_OPERATION;
        (whole && fits).then(|| first(end.div_ceil(UNIT)) & !first(offset / UNIT))
    }

    /// May this piece be placed? It is one of the operation, and none of it has arrived before.
    #[inline]
    pub fn awaits(&self, size: u32, offset: u64, len: u32) -> bool {
        Arrivals::units(size, offset, len).is_some_and(|units| units & self.0 == 0)
    }

    /// The piece has been placed. Returns whether all bytes are there now.
    #[inline]
    pub fn placed(&mut self, size: u32, offset: u64, len: u32) -> bool {
        self.0 |= Arrivals::units(size, offset, len).unwrap_or(0);
        self.is_complete(size)
    }

    /// Are all `size` bytes there?
    #[inline]
    pub fn is_complete(&self, size: u32) -> bool {
        self.0 == first(size.div_ceil(UNIT))
    }
}
