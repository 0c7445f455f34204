//! Spans: checked ranges of registered memory.

use crate::{AccessError, copy, stripes, word};
use std::marker::PhantomData;

/// `len` bytes of registered memory, usable until the pass `'p` ends. Every access within these bounds is
/// allowed; other threads may be changing the bytes at the same time.
#[derive(Copy, Clone, Debug)]
pub struct Span<'p> {
    start: *mut u8,
    len: usize,
    pass: PhantomData<&'p ()>,
}

/// Prefetches the cache line of `value`, which is needed a little later.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    hint(std::ptr::from_ref(value).cast());
}

#[inline(always)]
fn hint(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    let _ = at;
}

/// Two cache lines, 64-byte aligned: the source of [`Span::scatter`].
#[derive(Copy, Clone, Debug)]
#[repr(C, align(64))]
pub struct Lines(pub [u8; copy::SCATTERED]);

/// Orders earlier [`scatter`](Span::scatter)s before all later stores.
#[inline]
pub fn settle() {
    copy::settle();
}

/// Largest number of bytes that one call prefetches.
const PREFETCHED: usize = 640;

/// Converts the result of a copy: false is a page fault.
#[inline(always)]
pub(crate) fn whole(fine: bool) -> Result<(), AccessError> {
    if fine { Ok(()) } else { Err(AccessError::PageFault) }
}

impl<'p> Span<'p> {
    /// # Safety
    /// `len` bytes from `start` on stay mapped, readable and writable during `'p`, or page faults are handled
    /// ([`page_fault`](crate::page_fault)).
    #[inline(always)]
    pub(crate) unsafe fn new(start: *mut u8, len: usize) -> Span<'p> {
        Span { start, len, pass: PhantomData }
    }

    /// Returns a span of no bytes.
    #[inline]
    pub fn empty() -> Span<'p> {
        Span { start: std::ptr::dangling_mut(), len: 0, pass: PhantomData }
    }

    /// Returns the number of bytes in the span.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns a pointer to the first byte, for code that accesses the span by other means. Other threads
    /// may write the bytes at any time.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.start
    }

    /// Returns the part of `len` bytes at `offset`.
    ///
    /// # Errors
    /// `OutOfBounds` if the part leaves the span.
    #[inline]
    pub fn part(&self, offset: usize, len: usize) -> Result<Span<'p>, AccessError> {
        // SAFETY: a part of this span.
        self.at(offset, len).map(|start| unsafe { Span::new(start, len) })
    }

    /// Copies the first `min(len, out.len())` bytes to `out` and returns their number. Returns 0 after a
    /// page fault; bytes of `out` may have changed then.
    #[inline]
    #[must_use = "a page may be gone"]
    pub fn read(&self, out: &mut [u8]) -> usize {
        let len = self.len.min(out.len());
        // SAFETY: within the span; `out` is the caller's own.
        if unsafe { copy::fetch(out.as_mut_ptr(), self.start, len) } { len } else { 0 }
    }

    /// Copies the first `min(len, data.len())` bytes of `data` to the span and returns their number. The
    /// last byte becomes visible last. Returns 0 after a page fault; some bytes may have been written then.
    #[inline]
    #[must_use = "a page may be gone"]
    pub fn write(&self, data: &[u8]) -> usize {
        let len = self.len.min(data.len());
        // SAFETY: within the span; nobody writes `data` while it is borrowed.
        if unsafe { copy::place(self.start, data.as_ptr(), len) } { len } else { 0 }
    }

    /// Copies two cache lines to the span and returns the number of bytes. If the span has exactly this
    /// length and begins at a cache line, the bytes bypass the caches: this suits values that are written
    /// in turn to many addresses and not read soon. Other threads see such bytes after [`settle`] at the
    /// latest. Returns 0 after a page fault.
    #[inline]
    #[must_use = "a page may be gone"]
    pub fn scatter(&self, lines: &Lines) -> usize {
        if self.len != copy::SCATTERED || !(self.start as usize).is_multiple_of(64) {
            return self.write(&lines.0);
        }
        // SAFETY: within the span; nobody writes `lines` while it is borrowed, and both are aligned.
        if unsafe { copy::scatter(self.start, lines.0.as_ptr()) } { self.len } else { 0 }
    }

    /// Copies `data` to `offset`.
    ///
    /// # Errors
    /// `OutOfBounds`, and nothing is copied; `PageFault`, and some bytes may be copied.
    #[inline]
    pub fn write_at(&self, offset: usize, data: &[u8]) -> Result<(), AccessError> {
        whole(self.part(offset, data.len())?.write(data) == data.len())
    }

    /// Copies bytes from `source`, as many as the shorter of both spans has, and returns their number; 0
    /// after a page fault. If the spans overlap, the result is unspecified.
    #[inline]
    #[must_use = "a page may be gone"]
    pub fn copy_from(&self, source: &Span<'_>) -> usize {
        let len = self.len.min(source.len);
        // SAFETY: within both spans.
        if unsafe { copy::transfer(self.start, source.start, len) } { len } else { 0 }
    }

    /// Prefetches the first cache lines of the span, up to 640 bytes.
    #[inline]
    pub fn prefetch(&self) {
        self.prefetch_beside(0, self.len);
    }

    /// Prefetches `len` bytes (at most 640) that begin `away` bytes after the start of the span. Every
    /// address is allowed, because a prefetch accesses nothing.
    #[inline]
    pub fn prefetch_beside(&self, away: u64, len: usize) {
        let start = self.start.wrapping_add(away as usize);
        for at in (0..len.min(PREFETCHED)).step_by(64) {
            hint(start.wrapping_add(at));
        }
    }

    /// Loads the 64-bit word at the start (Acquire), in the machine's byte order.
    ///
    /// # Errors
    /// `Misaligned`; `OutOfBounds` if the span has fewer than 8 bytes; `PageFault`.
    #[inline]
    pub fn load64(&self) -> Result<u64, AccessError> {
        let at = self.word()?;
        // SAFETY: an aligned word of the span; so below.
        unsafe { word::load(at) }.ok_or(AccessError::PageFault)
    }

    /// Stores the 64-bit word at the start (Release).
    ///
    /// # Errors
    /// The errors of [`load64`](Span::load64).
    #[inline]
    pub fn store64(&self, value: u64) -> Result<(), AccessError> {
        let at = self.word()?;
        // SAFETY: as in `load64`.
        whole(self.beside_wide(|| unsafe { word::store(at, value) }))
    }

    /// Stores `swap` if the word equals `compare`. Returns the word as it was before.
    ///
    /// # Errors
    /// The errors of [`load64`](Span::load64).
    #[inline]
    pub fn compare_swap64(&self, compare: u64, swap: u64) -> Result<u64, AccessError> {
        let at = self.word()?;
        // SAFETY: as in `load64`.
        self.beside_wide(|| unsafe { word::compare_swap(at, compare, swap) }).ok_or(AccessError::PageFault)
    }

    /// Adds to the word, wrapping. Returns the word as it was before.
    ///
    /// # Errors
    /// The errors of [`load64`](Span::load64).
    #[inline]
    pub fn fetch_add64(&self, add: u64) -> Result<u64, AccessError> {
        let at = self.word()?;
        // SAFETY: as in `load64`.
        self.beside_wide(|| unsafe { word::fetch_add(at, add) }).ok_or(AccessError::PageFault)
    }

    /// Runs an atomic operation on one or two aligned words under the lock that 32-byte updates of other
    /// engines respect, if such updates are in use.
    #[inline(always)]
    fn beside_wide<R>(&self, atomic: impl FnOnce() -> R) -> R {
        if stripes::needed() { stripes::alone(self.start, atomic) } else { atomic() }
    }

    #[inline(always)]
    fn word(&self) -> Result<*mut u64, AccessError> {
        Ok(self.aligned(8)?.cast())
    }

    #[inline(always)]
    pub(crate) fn aligned(&self, width: usize) -> Result<*mut u8, AccessError> {
        if self.len < width {
            return Err(AccessError::OutOfBounds);
        }
        if self.start as usize & (width - 1) != 0 {
            return Err(AccessError::Misaligned);
        }
        Ok(self.start)
    }

    #[inline(always)]
    fn at(&self, offset: usize, len: usize) -> Result<*mut u8, AccessError> {
        if offset > self.len || len > self.len - offset {
            return Err(AccessError::OutOfBounds);
        }
        Ok(self.start.wrapping_add(offset))
    }
}

#[cfg(test)]
mod tests;
