//! Compare-and-swap of 16 bytes.

/// # Safety
/// `at` is 16-byte aligned and 16 bytes there are mapped and writable.
#[inline]
pub(crate) unsafe fn compare_swap(at: *mut u128, compare: u128, swap: u128) -> u128 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if std::is_x86_feature_detected!("cmpxchg16b") {
        // SAFETY: the caller's promise, and the machine has the instruction.
        return unsafe { locked(at, compare, swap) };
    }
    // SAFETY: the caller's promise.
    unsafe { one_at_a_time(at, compare, swap) }
}

/// # Safety
/// As [`compare_swap`], and the machine has cmpxchg16b.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn locked(at: *mut u128, compare: u128, swap: u128) -> u128 {
    let (mut low, mut high) = (compare as u64, (compare >> 64) as u64);
    // SAFETY: the caller's promise. rbx is the compiler's own, so it is swapped in and out around the instruction.
    unsafe {
        std::arch::asm!(
            "xchg rbx, {new}", "lock cmpxchg16b [{at}]", "mov rbx, {new}",
            at = in(reg) at, new = inout(reg) swap as u64 => _,
            in("rcx") (swap >> 64) as u64, inout("rax") low, inout("rdx") high,
            options(nostack)
        );
    }
    u128::from(high) << 64 | u128::from(low)
}

/// # Safety
/// As [`compare_swap`].
unsafe fn one_at_a_time(at: *mut u128, compare: u128, swap: u128) -> u128 {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Mutex, PoisonError};
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
    let (a, b) = (first.load(Ordering::SeqCst), second.load(Ordering::SeqCst));
    if (a, b) == halves(compare) {
        let (new_a, new_b) = halves(swap);
        first.store(new_a, Ordering::SeqCst);
        second.store(new_b, Ordering::SeqCst);
    }
    let (a, b) = (a.to_ne_bytes(), b.to_ne_bytes());
    u128::from_ne_bytes(std::array::from_fn(|i| if i < 8 { a[i] } else { b[i - 8] }))
}
