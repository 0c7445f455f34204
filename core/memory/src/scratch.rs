//! Scratch memory: 32 bytes of on-NIC memory for one connection, where one operation of a PRISM chain
//! leaves its result for the next (PRISM §3.4).
//!
//! Scratch is taken from the memory that programs also allocate ([`Table::on_nic`]): 8192 pieces in the 256
//! KiB of a default table. No key names it. Returned scratch is lent to another connection only after all
//! passes that were in progress at its return have ended. A caller waits for that only if no other memory
//! is free; inside a pass the call fails instead.

use crate::on_nic::{Allocator, Extent};
use crate::pass::Passes;
use crate::{Error, Mem, Span, Table};
use std::sync::Arc;

/// Size in bytes of one piece of scratch, and its alignment.
const LEN: usize = 32;

/// A piece of on-NIC memory. Dropping the value gives the piece back.
#[derive(Debug)]
pub struct Scratch {
    /// The memory; `Some` until the value is dropped.
    extent: Option<Extent>,
    passes: Arc<Passes>,
}

impl Scratch {
    /// Size in bytes of every piece of scratch.
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
    /// Lends 32 zeroed bytes of on-NIC memory, 32-byte aligned, to one connection.
    ///
    /// # Errors
    /// `Full` if on-NIC memory is used up; inside a pass also if the only free pieces wait for passes to
    /// end.
    pub fn lend_scratch(&self) -> Result<Scratch, Error> {
        let extent = self.take_on_nic(LEN, LEN)?;
        let whole = self.whole_on_nic().ok_or(Error::Full)?;
        whole.write(extent.offset(), &[0; LEN]).map_err(|_| Error::Full)?;
        Ok(Scratch { extent: Some(extent), passes: Arc::clone(self.passes()) })
    }

    /// Allocates an extent. If all free extents wait for passes to end, waits for these passes, unless the
    /// caller is inside one.
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
    /// Lends scratch like [`Table::lend_scratch`], for the engine whose pass this is.
    ///
    /// # Errors
    /// The errors of [`Table::lend_scratch`].
    pub fn lend_scratch(self) -> Result<Scratch, Error> {
        self.table().lend_scratch()
    }

    /// Returns the 32 bytes of a piece of scratch. The span is empty if another table lent it.
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
