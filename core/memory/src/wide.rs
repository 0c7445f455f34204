//! Loads, stores and compare-and-swap of 16 bytes. Loads and compare-and-swaps return `None` and stores
//! return false after a page fault ([`page_fault`](crate::page_fault)).
//!
//! On x86-64 and ARM64 they are atomic against everything that accesses the bytes, except that an old
//! processor loads bytes that are mapped read-only in two halves ([`load`]). Under Miri and on other machines
//! they are atomic only against each other within the process.

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod arm64;
#[cfg(any(miri, not(target_arch = "aarch64")))]
mod portable;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64;

#[cfg(all(target_arch = "aarch64", not(miri)))]
use arm64 as imp;
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
use portable as imp;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use x86_64 as imp;

/// Stores `swap` if the 16 bytes equal `compare`. Returns the 16 bytes as they were before.
///
/// # Safety
/// `at` is 16-byte aligned and 16 bytes there are mapped and writable.
#[inline]
pub(crate) unsafe fn compare_swap(at: *mut u128, compare: u128, swap: u128) -> Option<u128> {
    // SAFETY: the caller's promise.
    unsafe { imp::compare_swap(at, compare, swap) }
}

/// Loads all 16 bytes at once on x86-64 with AVX and on ARM64 with LSE2 (ARMv8.4). Other processors may load
/// two halves of 8 bytes, so that only [`stripes`](crate::stripes) keeps other engines out: an instruction
/// that loads all 16 bytes would write, and the bytes may be mapped read-only.
///
/// # Safety
/// `at` is 16-byte aligned and 16 bytes there are mapped.
#[inline]
pub(crate) unsafe fn load(at: *const u128) -> Option<u128> {
    // SAFETY: the caller's promise.
    unsafe { imp::load(at) }
}

/// Loads 16 writable bytes, all of them at once on every x86-64 and ARM64 processor.
///
/// # Safety
/// `at` is 16-byte aligned and 16 bytes there are mapped and writable.
#[inline]
pub(crate) unsafe fn load_writable(at: *mut u128) -> Option<u128> {
    // SAFETY: the caller's promise.
    unsafe { imp::load_writable(at) }
}

/// Stores all 16 bytes at once on x86-64 and ARM64.
///
/// # Safety
/// `at` is 16-byte aligned and 16 bytes there are mapped and writable.
#[inline]
pub(crate) unsafe fn store(at: *mut u128, value: u128) -> bool {
    // SAFETY: the caller's promise.
    unsafe { imp::store(at, value) }
}

#[cfg(test)]
mod tests;
