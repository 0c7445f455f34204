//! Atomic operations on an aligned 64-bit word of registered memory. Each returns `None` or false after a
//! page fault ([`page_fault`](crate::page_fault)).
//!
//! Under Miri and on machines other than x86-64 and ARM64 they are Rust's atomics, whose page faults are not
//! handled.

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod arm64;
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod portable;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64;

#[cfg(all(target_arch = "aarch64", not(miri)))]
use arm64 as imp;
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
use portable as imp;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use x86_64 as imp;

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
pub(crate) use imp::marked_asm;

/// Loads a word with Acquire ordering.
///
/// # Safety
/// `at` is 8-byte aligned and mapped. The functions below that change the word also need it writable.
#[inline(always)]
pub(crate) unsafe fn load(at: *const u64) -> Option<u64> {
    // SAFETY: the caller's promise.
    unsafe { imp::load(at) }
}

/// Loads a word with Acquire ordering into 8 private bytes of the caller, which need no alignment.
///
/// # Safety
/// The conditions of [`load`]; `out` is valid for writes of 8 bytes and belongs to the caller.
#[inline(always)]
#[must_use]
pub(crate) unsafe fn fetch(out: *mut u8, at: *const u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe { imp::fetch(out, at) }
}

/// Stores a word with Release ordering.
///
/// # Safety
/// The conditions of [`load`], and the word is writable.
#[inline(always)]
#[must_use]
pub(crate) unsafe fn store(at: *mut u64, value: u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe { imp::store(at, value) }
}

/// Stores `swap` if the word equals `compare`, and returns the word as it was before. Sequentially
/// consistent, like the next two functions.
///
/// # Safety
/// The conditions of [`load`], and the word is writable.
#[inline(always)]
pub(crate) unsafe fn compare_swap(at: *mut u64, compare: u64, swap: u64) -> Option<u64> {
    // SAFETY: the caller's promise.
    unsafe { imp::compare_swap(at, compare, swap) }
}

/// Adds to the word, wrapping, and returns the word as it was before.
///
/// # Safety
/// The conditions of [`load`], and the word is writable.
#[inline(always)]
pub(crate) unsafe fn fetch_add(at: *mut u64, add: u64) -> Option<u64> {
    // SAFETY: the caller's promise.
    unsafe { imp::fetch_add(at, add) }
}
