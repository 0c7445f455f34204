//! The right to touch registered memory during one pass of one engine.

use crate::entry::{Entry, NULL, WINDOW};
use crate::null;
use crate::pass::Pass;
use crate::{Access, AccessError, BindError, Binding, Key, Owner, Pd, Span, Table};
use std::marker::PhantomData;
use std::sync::atomic::Ordering;

/// The right to touch registered memory until the pass `'p` of an engine ends. Lent by
/// [`Guard::parts`](crate::Guard::parts).
///
/// Every access is checked. A granted access stays valid until the pass ends, because deregistration waits
/// for the pass.
#[derive(Copy, Clone)]
pub struct Mem<'p> {
    table: &'p Table,
    // Keeps the value on the thread of the pass, and no longer than the pass.
    here: PhantomData<(&'p Pass, *const ())>,
}

impl<'p> Mem<'p> {
    pub(crate) fn new(table: &'p Table, _pass: &'p Pass) -> Mem<'p> {
        Mem { table, here: PhantomData }
    }

    pub(crate) fn table(self) -> &'p Table {
        self.table
    }

    /// Checks that the `len` bytes from `va` on may be accessed by `key` from `pd` with the rights
    /// `access`, and returns their span.
    ///
    /// All bytes must lie in one range of the region. An access of no bytes succeeds with any key (IBTA
    /// C9-88 for RDMA; local accesses are treated likewise).
    ///
    /// # Errors
    /// `UnknownKey`, `WrongPd`, `MissingRight` or `OutOfBounds`: the first that applies, in this order.
    #[inline(always)]
    pub fn check(
        self,
        pd: Pd,
        key: Key,
        va: u64,
        len: usize,
        access: Access,
    ) -> Result<Span<'p>, AccessError> {
        self.check_for(pd, Owner::NOBODY, key, va, len, access)
    }

    /// Checks an access like [`check`](Mem::check), on behalf of the peer of the queue pair `owner`: the
    /// peer may also use windows that are bound to that queue pair only.
    ///
    /// # Errors
    /// The errors of [`check`](Mem::check); `WrongOwner` is checked after `WrongPd`.
    #[inline(always)]
    pub fn check_for(
        self,
        pd: Pd,
        owner: Owner,
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
            // SAFETY: the entry was alive after this pass began, so its memory stays mapped until the pass
            // ends; the checked range lies within.
            return Ok(unsafe { Span::new(start.wrapping_add(offset as usize), len) });
        }
        check_slowly(entry, pd, owner, key, va, len, access)
    }

    /// Checks an access without returning a span: for a whole message, at its first packet.
    ///
    /// # Errors
    /// The errors of [`check`](Mem::check).
    #[inline]
    pub fn probe(self, pd: Pd, key: Key, va: u64, len: usize, access: Access) -> Result<(), AccessError> {
        self.check(pd, key, va, len, access).map(|_| ())
    }

    /// Checks like [`probe`](Mem::probe), on behalf of the peer of the queue pair `owner`.
    ///
    /// # Errors
    /// The errors of [`check_for`](Mem::check_for).
    #[inline]
    pub fn probe_for(
        self,
        pd: Pd,
        owner: Owner,
        key: Key,
        va: u64,
        len: usize,
        access: Access,
    ) -> Result<(), AccessError> {
        self.check_for(pd, owner, key, va, len, access).map(|_| ())
    }

    /// Returns the protection domain of a live key; `None` if the key is not alive.
    pub fn domain(self, key: Key) -> Option<Pd> {
        let entry = self.table.entry(key);
        if key.0 == 0 || entry.key.load(Ordering::Acquire) != key.0 {
            return None;
        }
        let pd = match entry.pieces.load(Ordering::Relaxed) {
            WINDOW => entry.look().filter(|view| view.key == key.0)?.domain,
            _ => entry.pd.load(Ordering::Relaxed),
        };
        Some(Pd(pd))
    }

    /// Invalidates a key: LOCAL_INV or SEND_INV by the queue pair `owner`. From then on no check succeeds
    /// with `key`; spans of this pass stay valid. A region keeps its entry in the table until it is
    /// deregistered; a window may be bound again.
    ///
    /// # Errors
    /// `UnknownKey` or `WrongPd`; `WrongOwner` for a window of another queue pair; `MissingRight` if the
    /// region lacks [`Access::INVALIDATE`], for a window of type 1, and while windows are bound to the
    /// region.
    pub fn invalidate(self, pd: Pd, owner: Owner, key: Key) -> Result<(), AccessError> {
        let entry = self.table.entry(key);
        if key.0 == 0 || entry.key.load(Ordering::Acquire) != key.0 {
            return Err(AccessError::UnknownKey);
        }
        if entry.pieces.load(Ordering::Relaxed) == WINDOW {
            return self.table.invalidate_window(pd, owner, key);
        }
        if entry.pd.load(Ordering::Relaxed) != pd.0 {
            return Err(AccessError::WrongPd);
        }
        let open = Access(entry.access.load(Ordering::Relaxed)).contains(Access::INVALIDATE);
        if !open || entry.windows.load(Ordering::Relaxed) > 0 {
            return Err(AccessError::MissingRight);
        }
        if entry.kill(key.0) { Ok(()) } else { Err(AccessError::UnknownKey) }
    }

    /// Binds a window, or removes its binding: `BIND_MW` by the queue pair `owner` of the domain `pd`.
    ///
    /// # Errors
    /// [`BindError`]; the window is unchanged then.
    pub fn bind(self, pd: Pd, owner: Owner, binding: &Binding) -> Result<(), BindError> {
        self.table.bind(pd, owner, binding)
    }

    /// Returns whether the span lies in on-NIC memory.
    #[inline]
    pub fn is_on_nic(self, span: &Span<'_>) -> bool {
        self.table.is_on_nic(span.as_ptr())
    }
}

/// The slow path of a check: a window, the null region, several ranges, no bytes, or a refusal.
#[cold]
#[inline(never)]
fn check_slowly<'p>(
    entry: &'p Entry,
    pd: Pd,
    owner: Owner,
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
    let count = entry.pieces.load(Ordering::Relaxed);
    if count == WINDOW {
        return check_window(entry, pd, owner, key, va, len, access);
    }
    if entry.pd.load(Ordering::Relaxed) != pd.0 {
        return Err(AccessError::WrongPd);
    }
    if !Access(entry.access.load(Ordering::Relaxed)).contains(access) {
        return Err(AccessError::MissingRight);
    }
    if count == NULL {
        let at = null::at(len, access).ok_or(AccessError::OutOfBounds)?;
        let start = entry.start.load(Ordering::Relaxed).wrapping_add(at);
        // SAFETY: the entry was alive after this pass began, so its block stays until the pass ends; `at`
        // lies within the block.
        return Ok(unsafe { Span::new(start, len) });
    }
    // SAFETY: the entry was alive after this pass began.
    let start = unsafe { entry.place(va, len as u64) }.ok_or(AccessError::OutOfBounds)?;
    // SAFETY: as in `check`.
    Ok(unsafe { Span::new(start, len) })
}

/// Checks an access through a window. Only peers may use windows: an access that needs no remote right is a
/// local one and is refused.
fn check_window<'p>(
    entry: &'p Entry,
    pd: Pd,
    owner: Owner,
    key: Key,
    va: u64,
    len: usize,
    access: Access,
) -> Result<Span<'p>, AccessError> {
    let view = entry.look().filter(|view| view.key == key.0).ok_or(AccessError::UnknownKey)?;
    if view.domain != pd.0 {
        return Err(AccessError::WrongPd);
    }
    if view.owner != 0 && view.owner != owner.0 {
        return Err(AccessError::WrongOwner);
    }
    if access == Access::NONE || !Access(view.access).contains(access) {
        return Err(AccessError::MissingRight);
    }
    let start = view.piece.place(va, len as u64).ok_or(AccessError::OutOfBounds)?;
    // SAFETY: the window was bound after this pass began. Its region is deregistered only after its windows
    // are unbound, and that waits for the pass.
    Ok(unsafe { Span::new(start, len) })
}
