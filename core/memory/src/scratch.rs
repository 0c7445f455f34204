//! Scratch: 32 bytes of on-NIC memory for one connection. One operation of a PRISM chain leaves its result
//! there for the next (PRISM §3.4).
//!
//! It is taken from the memory that programs also allocate ([`Table::on_nic`]): 8192 parts in the 256 KiB of
//! a default table. No key names it. A returned scratch is lent again only when all passes that were under
//! way then are over. A caller waits for that only if the memory is used up otherwise; inside a pass it is
//! refused instead.

use crate::on_nic::{Allocator, Extent};
use crate::pass::Passes;
use crate::{Error, Mem, Span, Table};
use std::sync::Arc;

/// Bytes of one scratch, and its alignment.
const LEN: usize = 32;

/// A part of on-NIC memory, lent until it is given to [`Table::return_scratch`] or dropped, which is the
/// same.
#[derive(Debug)]
pub struct Scratch {
    /// There until it is dropped.
    extent: Option<Extent>,
    passes: Arc<Passes>,
}

impl Scratch {
    /// Bytes of every scratch.
    pub const LEN: usize = LEN;
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(extent) = self.extent.take() {
            extent.rest(self.passes.stamp());
        }
    }
}

impl Table {
    /// 32 zeroed bytes of on-NIC memory, 32-byte aligned, for one connection.
    ///
    /// # Errors
    /// `Full`: on-NIC memory is used up; inside a pass also while the last free ones wait for passes to end.
    pub fn lend_scratch(&self) -> Result<Scratch, Error> {
        let extent = self.take_on_nic(LEN, LEN)?;
        let whole = self.whole_on_nic().ok_or(Error::Full)?;
        whole.write(extent.offset(), &[0; LEN]).map_err(|_| Error::Full)?;
        Ok(Scratch { extent: Some(extent), passes: Arc::clone(self.passes()) })
    }

    /// Takes a scratch back. Never waits, and may be called inside a pass. Spans of it stay usable until the
    /// pass ends, and its bytes are lent to nobody before.
    pub fn return_scratch(&self, scratch: Scratch) {
        drop(scratch);
    }

    /// Takes a part. Waits for passes if all free parts wait for them, unless the caller is inside one.
    pub(crate) fn take_on_nic(&self, len: usize, grain: usize) -> Result<Extent, Error> {
        let parts: &Allocator = self.on_nic_parts();
        match parts.take(len, grain) {
            Err(Error::Full) if parts.is_resting() && !self.passes().is_inside() => {
                self.passes().quiesce();
                parts.take(len, grain)
            }
            taken => taken,
        }
    }
}

impl<'p> Mem<'p> {
    /// As [`Table::lend_scratch`], for the engine whose pass this is.
    ///
    /// # Errors
    /// As there.
    pub fn lend_scratch(self) -> Result<Scratch, Error> {
        self.table().lend_scratch()
    }

    /// The 32 bytes of a scratch, for its holder to read and write. Empty if another table lent it.
    #[inline]
    pub fn scratch(self, scratch: &Scratch) -> Span<'p> {
        let table: &'p Table = self.table();
        let extent = scratch.extent.as_ref().filter(|extent| table.on_nic_parts().owns(extent));
        let start = extent.and_then(|extent| table.whole_on_nic()?.at(extent.offset(), LEN).ok());
        // SAFETY: on-NIC memory stays as long as the table, which outlives the pass; `at` checked the length.
        start.map_or(Span::empty(), |start| unsafe { Span::new(start, LEN) })
    }
}

#[cfg(test)]
mod tests;
