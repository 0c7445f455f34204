//! The DMA copy: moves bytes that other threads or processes may be reading or writing at the same time.
//!
//! `memcpy` is not allowed to do that: a data race is undefined behaviour in Rust, even if the bytes are
//! never used. The moves are therefore machine instructions inside `asm!`; as with DMA by a device, the
//! compiler knows only that the memory may have changed. Under Miri and on machines other than x86-64 and
//! ARM64 they are atomics.
//!
//! **Order.** The last byte of a copy becomes visible last, as programs that poll the end of a buffer
//! (`ib_write_lat`, for example) expect of a NIC. A copy of less than 4 KiB stores in rising order, and a
//! copy of any length is stored after all earlier ones. Loads from one aligned line of 64 bytes run in rising
//! order; lines may be loaded in any order. So a line that has the same version at both ends is whole, if
//! its writer changes the versions before and after the rest. On x86-64 with AVX, units of 16 bytes that are
//! aligned on both sides are not torn; on other machines, aligned units of 8 bytes. Nothing wider is
//! guaranteed: a reader that must detect a torn line needs a check that covers all of it (a checksum, or
//! version numbers at both ends).
//!
//! **Page faults.** Each copy returns false if a page was absent or its mapping does not allow the access,
//! provided that the process handles page faults ([`page_fault`](crate::page_fault)). Some bytes may have
//! been copied then. Portable copies never return false: a fault ends the process.

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod arm64;
#[cfg(any(test, miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[cfg_attr(test, allow(dead_code, unused_imports, reason = "the tests try it where it is not in use"))]
mod portable;
#[cfg(any(test, miri, not(target_arch = "x86_64")))]
mod staged;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64;

#[cfg(all(target_arch = "aarch64", not(miri)))]
use arm64 as imp;
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
use portable as imp;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use x86_64 as imp;

/// Copies shared bytes into a private buffer of the caller. Like every copy of this module, returns false
/// on a page fault.
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

/// Copies an aligned word in one access into 8 private bytes of the caller, which need no alignment.
///
/// # Safety
/// The conditions of [`fetch`], for 8 bytes.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
#[must_use]
pub(crate) unsafe fn fetch_word(dst: *mut u8, src: *const u8) -> bool {
    // SAFETY: the caller's promise.
    unsafe { imp::move8(dst, src) }
}

/// Copies private bytes of the caller into shared memory.
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

/// Number of bytes that one call of [`scatter`] copies.
pub(crate) const SCATTERED: usize = 128;

/// Copies [`SCATTERED`] private bytes into shared memory past the caches: whole cache lines are written
/// without being fetched first. Other threads see the bytes after [`settle`] at the latest.
///
/// # Safety
/// The conditions of [`place`]; both addresses are 32-byte aligned.
#[inline(always)]
#[must_use]
pub(crate) unsafe fn scatter(dst: *mut u8, src: *const u8) -> bool {
    // SAFETY: the caller's promise.
    unsafe { imp::scatter(dst, src) }
}

/// Orders earlier [`scatter`]ed bytes before all later stores.
#[inline]
pub(crate) fn settle() {
    imp::settle();
}

/// Copies shared bytes to shared bytes. If source and destination overlap, the result is unspecified.
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
