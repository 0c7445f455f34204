//! The right to touch registered memory during one pass of one engine.

use crate::entry::{Entry, Piece};
use crate::pass::Pass;
use crate::{Access, AccessError, Key, Pd, Span, Table, copy};
use std::marker::PhantomData;
use std::sync::atomic::Ordering;

/// The right to touch registered memory until the pass `'p` of an engine ends. Lent by [`Guard::parts`](crate::Guard::parts).
///
/// Every access goes through a check; what a check allows stays allowed until the pass ends, because deregistration
/// waits for it.
#[derive(Copy, Clone)]
pub struct Mem<'p> {
    table: &'p Table,
    pass: &'p Pass,
    // Stays on the thread of the pass: `settle` orders only what this thread streamed.
    here: PhantomData<*const ()>,
}

impl<'p> Mem<'p> {
    pub(crate) fn new(table: &'p Table, pass: &'p Pass) -> Mem<'p> {
        Mem { table, pass, here: PhantomData }
    }

    /// May `len` bytes from `va` on be accessed by `key` from `pd` with the rights `access`? The span is where they are.
    ///
    /// All bytes must lie in one range of the region. An access of no bytes succeeds whatever the key
    /// (IBTA C9-88 for RDMA; local ones are treated likewise).
    ///
    /// # Errors
    /// `UnknownKey`, `WrongPd`, `MissingRight`, `OutOfBounds`: the first that applies, in this order.
    #[inline]
    pub fn check(
        self,
        pd: Pd,
        key: Key,
        va: u64,
        len: usize,
        access: Access,
    ) -> Result<Span<'p>, AccessError> {
        let entry = self.table.entry(key);
        let wrong = entry.key.load(Ordering::Acquire) ^ key.0
            | entry.pd.load(Ordering::Relaxed) ^ pd.0
            | access.0 & !entry.access.load(Ordering::Relaxed);
        let offset = va.wrapping_sub(entry.iova.load(Ordering::Relaxed));
        let size = entry.len.load(Ordering::Relaxed);
        if wrong == 0 && offset < size && len as u64 <= size - offset {
            let start = entry.start.load(Ordering::Relaxed);
            // SAFETY: the entry was alive after this pass began, so what it describes stays mapped until the pass
            // ends; the range checked lies within.
            return Ok(unsafe { Span::new(start.wrapping_add(offset as usize), len) });
        }
        check_slowly(entry, pd, key, va, len, access)
    }

    /// Checks without giving a span: a whole message at its first packet.
    ///
    /// # Errors
    /// As [`check`](Mem::check).
    #[inline]
    pub fn probe(self, pd: Pd, key: Key, va: u64, len: usize, access: Access) -> Result<(), AccessError> {
        self.check(pd, key, va, len, access).map(|_| ())
    }

    /// LOCAL_INV or SEND_INV: from now on no check succeeds with `key`; spans of this pass stay valid. The region keeps
    /// its place in the table until it is deregistered.
    ///
    /// # Errors
    /// `UnknownKey`, `WrongPd`, or `MissingRight` if the region lacks [`Access::INVALIDATE`].
    pub fn invalidate(self, pd: Pd, key: Key) -> Result<(), AccessError> {
        let entry = self.table.entry(key);
        if key.0 == 0 || entry.key.load(Ordering::Acquire) != key.0 {
            return Err(AccessError::UnknownKey);
        }
        if entry.pd.load(Ordering::Relaxed) != pd.0 {
            return Err(AccessError::WrongPd);
        }
        if !Access(entry.access.load(Ordering::Relaxed)).contains(Access::INVALIDATE) {
            return Err(AccessError::MissingRight);
        }
        if entry.kill(key.0) { Ok(()) } else { Err(AccessError::UnknownKey) }
    }

    /// Writes the first `min(span.len(), data.len())` bytes of `data` to the span past the caches; says how many. For the
    /// packets of a message so long (from 256 KiB on) that its head would be evicted before anyone reads it.
    ///
    /// Such stores are in no order with others until [`settle`](Mem::settle): call it before anything tells that they
    /// were made (an acknowledgement, a completion, the message's last packet). The end of the pass settles, too.
    #[inline]
    pub fn stream(self, span: &Span<'_>, data: &[u8]) -> usize {
        let len = span.len().min(data.len());
        self.pass.mark_streamed();
        // SAFETY: within the span; nobody writes `data` while it is borrowed.
        unsafe { copy::stream(span.as_ptr(), data.as_ptr(), len) };
        len
    }

    /// Orders what was [`stream`](Mem::stream)ed in this pass before all later stores; free if nothing was.
    #[inline]
    pub fn settle(self) {
        self.pass.settle();
    }

    /// Does the span lie in on-NIC memory? (Cost models charge no PCIe for it.)
    #[inline]
    pub fn is_on_nic(self, span: &Span<'_>) -> bool {
        self.table.is_on_nic(span.as_ptr())
    }
}

/// Several ranges, no bytes, or a refusal: finds out which.
#[cold]
#[inline(never)]
fn check_slowly<'p>(
    entry: &'p Entry,
    pd: Pd,
    key: Key,
    va: u64,
    len: usize,
    access: Access,
) -> Result<Span<'p>, AccessError> {
    if len == 0 {
        return Ok(Span::empty());
    }
    if key.0 == 0 || entry.key.load(Ordering::Acquire) != key.0 {
        return Err(AccessError::UnknownKey);
    }
    if entry.pd.load(Ordering::Relaxed) != pd.0 {
        return Err(AccessError::WrongPd);
    }
    if !Access(entry.access.load(Ordering::Relaxed)).contains(access) {
        return Err(AccessError::MissingRight);
    }
    let count = entry.pieces.load(Ordering::Relaxed) as usize;
    if count == 0 {
        return Err(AccessError::OutOfBounds);
    }
    let first = entry.start.load(Ordering::Relaxed).cast::<Piece>();
    // SAFETY: the entry was alive after this pass began; its pieces are freed only after the pass ends.
    let pieces: &'p [Piece] = unsafe { std::slice::from_raw_parts(first, count) };
    let at = pieces.partition_point(|piece| piece.iova <= va);
    let piece = at.checked_sub(1).map(|at| pieces[at]).ok_or(AccessError::OutOfBounds)?;
    let offset = va - piece.iova;
    if offset >= piece.len || len as u64 > piece.len - offset {
        return Err(AccessError::OutOfBounds);
    }
    // SAFETY: as in `check`.
    Ok(unsafe { Span::new(piece.start.wrapping_add(offset as usize), len) })
}
