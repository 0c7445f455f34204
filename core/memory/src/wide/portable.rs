//! Two words under a lock of the process. A program that accesses the bytes itself, or another process whose
//! engine does, may see one half changed and the other not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// # Safety
/// The conditions of [`super::compare_swap`].
pub(crate) unsafe fn compare_swap(at: *mut u128, compare: u128, swap: u128) -> Option<u128> {
    // SAFETY: the caller's promise.
    Some(unsafe { one_at_a_time(at, |was| (was == compare).then_some(swap)) })
}

/// # Safety
/// The conditions of [`super::load`].
pub(crate) unsafe fn load(at: *const u128) -> Option<u128> {
    // SAFETY: the caller's promise.
    Some(unsafe { one_at_a_time(at.cast_mut(), |_| None) })
}

/// # Safety
/// The conditions of [`super::load_writable`].
#[cfg(any(miri, not(target_arch = "x86_64")))]
pub unsafe fn load_writable(at: *mut u128) -> Option<u128> {
    // SAFETY: the caller's promise.
    unsafe { load(at) }
}

/// # Safety
/// The conditions of [`super::store`].
#[cfg(any(miri, not(target_arch = "x86_64")))]
pub unsafe fn store(at: *mut u128, value: u128) -> bool {
    // SAFETY: the caller's promise.
    unsafe { one_at_a_time(at, |_| Some(value)) };
    true
}

/// Stores the value that `change` returns, if any, under a lock of the process. Returns the 16 bytes as
/// they were before.
///
/// # Safety
/// The conditions of [`super::load`]; if `change` returns a value, the bytes are writable.
unsafe fn one_at_a_time(at: *mut u128, change: impl FnOnce(u128) -> Option<u128>) -> u128 {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let words = at.cast::<u64>();
    // SAFETY: two aligned words.
    let (first, second) = unsafe { (AtomicU64::from_ptr(words), AtomicU64::from_ptr(words.add(1))) };
    let halves = |value: u128| {
        let bytes = value.to_ne_bytes();
        let half = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
        (half(0), half(8))
    };
    let a = first.load(Ordering::SeqCst).to_ne_bytes();
    let b = second.load(Ordering::SeqCst).to_ne_bytes();
    let was = u128::from_ne_bytes(std::array::from_fn(|i| if i < 8 { a[i] } else { b[i - 8] }));
    if let Some(new) = change(was) {
        let (new_a, new_b) = halves(new);
        first.store(new_a, Ordering::SeqCst);
        second.store(new_b, Ordering::SeqCst);
    }
    was
}
