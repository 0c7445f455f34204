//! 16 bytes on x86-64.
//!
//! Both vendors document that a processor with AVX loads and stores 16 aligned bytes atomically (Intel SDM
//! vol. 3A, "Guaranteed Atomic Operations"; AMD APM vol. 2, "Access Atomicity").

use super::portable;
use crate::page_fault::{entry, guarded_asm};
use crate::word::marked_asm;
use std::arch::x86_64::__m128i;
use std::is_x86_feature_detected;

/// # Safety
/// The conditions of [`super::compare_swap`].
#[inline]
pub(crate) unsafe fn compare_swap(at: *mut u128, compare: u128, swap: u128) -> Option<u128> {
    if is_x86_feature_detected!("cmpxchg16b") {
        // SAFETY: the caller's promise, and the machine has the instruction.
        return unsafe { locked(at, compare, swap) };
    }
    // SAFETY: the caller's promise.
    unsafe { portable::compare_swap(at, compare, swap) }
}

/// # Safety
/// The conditions of [`super::load`].
#[inline]
pub(crate) unsafe fn load(at: *const u128) -> Option<u128> {
    if is_x86_feature_detected!("avx") {
        let value: __m128i;
        // SAFETY: the caller's promise.
        unsafe {
            let fine = marked_asm!("movdqa {v}, [{s}]"; v = out(xmm_reg) value, s = in(reg) at,);
            return fine.then_some(std::mem::transmute::<__m128i, u128>(value));
        }
    }
    // SAFETY: the caller's promise.
    unsafe { portable::load(at) }
}

/// Loads like [`load`]. Without AVX, cmpxchg16b loads all 16 bytes at once.
///
/// # Safety
/// The conditions of [`super::load_writable`].
#[inline]
pub(crate) unsafe fn load_writable(at: *mut u128) -> Option<u128> {
    if !is_x86_feature_detected!("avx") {
        // SAFETY: the caller's promise.
        return unsafe { compare_swap(at, 0, 0) };
    }
    // SAFETY: the caller's promise.
    unsafe { load(at) }
}

/// # Safety
/// The conditions of [`super::store`].
#[inline]
pub(crate) unsafe fn store(at: *mut u128, value: u128) -> bool {
    if is_x86_feature_detected!("avx") {
        // SAFETY: the caller's promise, and the two types are 16 bytes each.
        unsafe {
            let value = std::mem::transmute::<u128, __m128i>(value);
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

/// # Safety
/// The conditions of [`compare_swap`], and the machine has cmpxchg16b.
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
