//! The DMA copy: moves bytes that others may be reading or writing at the same moment.
//!
//! `memcpy` may not: a data race is undefined behaviour, even if nobody uses the bytes. Here the moves are
//! machine instructions inside `asm!`. As with a device, the compiler knows only that the memory may have
//! changed. Under Miri and on other machines they are relaxed atomics.
//!
//! **Order.** The last byte of a copy becomes visible last, as programs that poll the end of a buffer expect
//! of a NIC (`ib_write_lat` is one). Units of 16 bytes that are 16-byte aligned on both sides are not torn on
//! machines with AVX. They are moved in rising order up to 4 KiB. Nothing wider is promised: a reader that
//! must detect a torn *line* needs a mark in each half of its checks (a checksum, or versions at both ends).
//!
//! **Page faults.** Each copy returns false if a page was not there or its mapping does not allow the access,
//! and the process handles page faults ([`page_fault`](crate::page_fault)). Some bytes may be copied then.
//! Portable copies never return false: a fault ends the process.

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod moves;
#[cfg(any(test, miri, not(target_arch = "x86_64")))]
#[cfg_attr(test, allow(dead_code, unused_imports, reason = "the tests try it where it is not in use"))]
mod portable;

#[cfg(all(target_arch = "x86_64", not(miri)))]
use moves as imp;
#[cfg(any(miri, not(target_arch = "x86_64")))]
use portable as imp;

/// Copies shared bytes into the caller's own. False: a page fault; so below.
///
/// # Safety
/// `dst` is valid for writes of `len` bytes and nobody else touches it. `src` is mapped and readable for
/// `len` bytes; others may use it at the same time.
#[inline(always)]
#[must_use]
pub(crate) unsafe fn fetch(dst: *mut u8, src: *const u8, len: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { imp::fetch(dst, src, len) }
}

/// Copies an aligned word at once into 8 bytes of the caller's own, which need no alignment.
///
/// # Safety
/// As [`fetch`], 8 bytes.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
#[must_use]
pub(crate) unsafe fn fetch_word(dst: *mut u8, src: *const u8) -> bool {
    // SAFETY: the caller's promise.
    unsafe { imp::move8(dst, src) }
}

/// Copies the caller's own bytes into shared ones.
///
/// # Safety
/// `src` is valid for reads of `len` bytes and nobody writes it. `dst` is mapped and writable for `len`
/// bytes; others may use it at the same time.
#[inline(always)]
#[must_use]
pub(crate) unsafe fn place(dst: *mut u8, src: *const u8, len: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { imp::place(dst, src, len) }
}

/// Bytes that [`scatter`] places.
pub(crate) const SCATTERED: usize = 128;

/// Copies [`SCATTERED`] bytes of the caller's own into shared ones past the caches: whole lines are not
/// fetched before they are overwritten. Others see them after [`settle`] at the latest.
///
/// # Safety
/// As [`place`]; both are 32-byte aligned.
#[inline(always)]
#[must_use]
pub(crate) unsafe fn scatter(dst: *mut u8, src: *const u8) -> bool {
    // SAFETY: the caller's promise.
    unsafe { imp::scatter(dst, src) }
}

/// Orders earlier scattered bytes before all later stores.
#[inline]
pub(crate) fn settle() {
    imp::settle();
}

/// Copies shared bytes to shared bytes. If they overlap, the result is unspecified.
///
/// # Safety
/// Both are mapped for `len` bytes, and `dst` is writable; others may use them at the same time.
#[inline]
#[must_use]
pub(crate) unsafe fn transfer(dst: *mut u8, src: *const u8, len: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { imp::transfer(dst, src, len) }
}

#[cfg(test)]
mod tests;
