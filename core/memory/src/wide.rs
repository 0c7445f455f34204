//! Loads, stores and compare-and-swap of 16 bytes. Loads and compare-and-swaps return `None` and stores
//! return false after a page fault ([`page_fault`](crate::page_fault)).
//!
//! Both vendors of x86-64 document that a processor with AVX loads and stores 16 aligned bytes atomically
//! (Intel SDM vol. 3A, "Guaranteed Atomic Operations"; AMD APM vol. 2, "Access Atomicity").

#[cfg(all(target_arch = "x86_64", not(miri)))]
use crate::page_fault::{entry, guarded_asm};
#[cfg(all(target_arch = "x86_64", not(miri)))]
use crate::word::marked_asm;

/// Stores `swap` if the 16 bytes equal `compare`. Returns the 16 bytes as they were before.
///
/// # Safety
/// `at` is 16-byte aligned and 16 bytes there are mapped and writable.
#[inline]
pub(crate) unsafe fn compare_swap(at: *mut u128, compare: u128, swap: u128) -> Option<u128> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if std::is_x86_feature_detected!("cmpxchg16b") {
        // SAFETY: the caller's promise, and the machine has the instruction.
        return unsafe { locked(at, compare, swap) };
    }
    // SAFETY: the caller's promise.
    Some(unsafe { one_at_a_time(at, |was| (was == compare).then_some(swap)) })
}

/// Loads all 16 bytes at once on machines with AVX. Elsewhere loads two halves of 8 bytes, so that only
/// [`stripes`](crate::stripes) keeps other engines out. (cmpxchg16b would write, and the bytes may be mapped
/// read-only.)
///
/// # Safety
/// `at` is 16-byte aligned and 16 bytes there are mapped.
#[inline]
pub(crate) unsafe fn load(at: *const u128) -> Option<u128> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if std::is_x86_feature_detected!("avx") {
        let value: std::arch::x86_64::__m128i;
        // SAFETY: the caller's promise.
        unsafe {
            let fine = marked_asm!("movdqa {v}, [{s}]"; v = out(xmm_reg) value, s = in(reg) at,);
            return fine.then_some(std::mem::transmute::<std::arch::x86_64::__m128i, u128>(value));
        }
    }
    // SAFETY: the caller's promise.
    Some(unsafe { one_at_a_time(at.cast_mut(), |_| None) })
}

/// Loads 16 writable bytes like [`load`]. Without AVX, cmpxchg16b loads all of them at once.
///
/// # Safety
/// `at` is 16-byte aligned and 16 bytes there are mapped and writable.
#[inline]
pub(crate) unsafe fn load_writable(at: *mut u128) -> Option<u128> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if !std::is_x86_feature_detected!("avx") {
        // SAFETY: the caller's promise.
        return unsafe { compare_swap(at, 0, 0) };
    }
    // SAFETY: the caller's promise.
    unsafe { load(at) }
}

/// # Safety
/// `at` is 16-byte aligned and 16 bytes there are mapped and writable.
#[inline]
pub(crate) unsafe fn store(at: *mut u128, value: u128) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        if std::is_x86_feature_detected!("avx") {
            // SAFETY: the caller's promise, and the two types are 16 bytes each.
            unsafe {
                let value = std::mem::transmute::<u128, std::arch::x86_64::__m128i>(value);
                guarded_asm!("movdqa [{d}], {v}",; { return false }; v = in(xmm_reg) value, d = in(reg) at,
                    options(nostack, preserves_flags));
            }
            return true;
        }
        let mut was = 0;
        loop {
            // SAFETY: the caller's promise.
            match unsafe { compare_swap(at, was, value) } {
                None => return false,
                Some(now) if now == was => return true,
                Some(now) => was = now,
            }
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: the caller's promise.
    unsafe {
        one_at_a_time(at, |_| Some(value));
        true
    }
}

/// # Safety
/// The conditions of [`compare_swap`], and the machine has cmpxchg16b.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn locked(at: *mut u128, compare: u128, swap: u128) -> Option<u128> {
    let mut low = compare as u64;
    let mut high = (compare >> 64) as u64;
    let fault: u32;
    // Like `marked_asm`. The compiler reserves rbx, so the code swaps it in and out around the instruction,
    // also after a fault. The registers are named, because the compiler might choose rbx for one of them.
    // SAFETY: the caller's promise; every register that changes is an output or has its old value again.
    unsafe {
        std::arch::asm!(
            "mov r8d, 1", "xchg rbx, rsi", "20:", "lock cmpxchg16b [rdi]", "21:", "mov r8d, 0",
            "22:", "mov rbx, rsi", entry!("22b"),
            in("rdi") at, inout("rsi") swap as u64 => _, out("r8d") fault,
            in("rcx") (swap >> 64) as u64, inout("rax") low, inout("rdx") high,
            options(nostack)
        );
    }
    (fault == 0).then_some(u128::from(high) << 64 | u128::from(low))
}

/// Stores the value that `change` returns, if any, under a lock of the process. Returns the 16 bytes as
/// they were before.
///
/// # Safety
/// The conditions of [`load`]; if `change` returns a value, the bytes are writable.
unsafe fn one_at_a_time(at: *mut u128, change: impl FnOnce(u128) -> Option<u128>) -> u128 {
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
