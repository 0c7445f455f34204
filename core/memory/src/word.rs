//! Atomics of an aligned 64-bit word of registered memory. Each says None or false after a page fault
//! ([`page_fault`](crate::page_fault)).
//!
//! Under Miri and on other machines they are Rust's atomics, whose page faults nobody handles.

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod guarded;
#[cfg(any(miri, not(target_arch = "x86_64")))]
mod portable;

#[cfg(all(target_arch = "x86_64", not(miri)))]
use guarded as imp;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use guarded::marked_asm;
#[cfg(any(miri, not(target_arch = "x86_64")))]
use portable as imp;

/// Acquire.
///
/// # Safety
/// `at` is 8-byte aligned and mapped; so for all below, which also need it writable.
#[inline(always)]
pub(crate) unsafe fn load(at: *const u64) -> Option<u64> {
    // SAFETY: the caller's promise.
    unsafe { imp::load(at) }
}

/// Loads a word (Acquire) into the caller's own 8 bytes, which need no alignment.
///
/// # Safety
/// As [`load`]; `out` is the caller's own.
#[inline(always)]
#[must_use]
pub(crate) unsafe fn fetch(out: *mut u8, at: *const u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe { imp::fetch(out, at) }
}

/// Release.
///
/// # Safety
/// As [`load`], writable.
#[inline(always)]
#[must_use]
pub(crate) unsafe fn store(at: *mut u64, value: u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe { imp::store(at, value) }
}

/// Stores `swap` if the word equals `compare`; the word as it was. Sequentially consistent, as the next two.
///
/// # Safety
/// As [`load`], writable.
#[inline(always)]
pub(crate) unsafe fn compare_swap(at: *mut u64, compare: u64, swap: u64) -> Option<u64> {
    // SAFETY: the caller's promise.
    unsafe { imp::compare_swap(at, compare, swap) }
}

/// Adds, wrapping; the word as it was.
///
/// # Safety
/// As [`load`], writable.
#[inline(always)]
pub(crate) unsafe fn fetch_add(at: *mut u64, add: u64) -> Option<u64> {
    // SAFETY: the caller's promise.
    unsafe { imp::fetch_add(at, add) }
}

/// Stores; the word as it was.
///
/// # Safety
/// As [`load`], writable.
#[inline(always)]
pub(crate) unsafe fn swap(at: *mut u64, value: u64) -> Option<u64> {
    // SAFETY: the caller's promise.
    unsafe { imp::swap(at, value) }
}
