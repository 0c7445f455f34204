//! Atomics of other machines: those of Rust.

use std::sync::atomic::{AtomicU64, Ordering};

/// # Safety
/// The conditions of [`super::load`].
pub unsafe fn load(at: *const u64) -> Option<u64> {
    // SAFETY: the caller's promise.
    Some(unsafe { AtomicU64::from_ptr(at.cast_mut()) }.load(Ordering::Acquire))
}

/// # Safety
/// The conditions of [`super::fetch`].
pub unsafe fn fetch(out: *mut u8, at: *const u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe { out.cast::<u64>().write_unaligned(AtomicU64::from_ptr(at.cast_mut()).load(Ordering::Acquire)) };
    true
}

/// # Safety
/// The conditions of [`super::store`].
pub unsafe fn store(at: *mut u64, value: u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe { AtomicU64::from_ptr(at) }.store(value, Ordering::Release);
    true
}

/// # Safety
/// The conditions of [`super::compare_swap`].
pub unsafe fn compare_swap(at: *mut u64, compare: u64, swap: u64) -> Option<u64> {
    // SAFETY: the caller's promise.
    let word = unsafe { AtomicU64::from_ptr(at) };
    Some(word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst).unwrap_or_else(|was| was))
}

/// # Safety
/// The conditions of [`super::fetch_add`].
pub unsafe fn fetch_add(at: *mut u64, add: u64) -> Option<u64> {
    // SAFETY: the caller's promise.
    Some(unsafe { AtomicU64::from_ptr(at) }.fetch_add(add, Ordering::SeqCst))
}
