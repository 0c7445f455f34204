//! 16 bytes on ARM64.
//!
//! With LSE2 (FEAT_LSE2, ARMv8.4) a load or a store of an aligned pair of registers is atomic. With LSE
//! (FEAT_LSE, ARMv8.1) there is a compare-and-swap of 16 bytes. Without LSE, an exclusive load is atomic if
//! the exclusive store after it succeeds (Arm ARM B2.2.1).

use crate::page_fault;
use crate::word::{self, marked_asm};
use std::arch::is_aarch64_feature_detected;

/// The two words in the order of their addresses.
fn words(value: u128) -> [u64; 2] {
    // SAFETY: both types are 16 bytes, of which every value is valid.
    unsafe { std::mem::transmute(value) }
}

fn from_words(words: [u64; 2]) -> u128 {
    // SAFETY: as in `words`.
    unsafe { std::mem::transmute(words) }
}

/// # Safety
/// The conditions of [`super::compare_swap`].
#[inline]
pub(crate) unsafe fn compare_swap(at: *mut u128, compare: u128, swap: u128) -> Option<u128> {
    let expected = words(compare);
    let new = words(swap);
    let mut was = expected;
    // SAFETY: the caller's promise, and the processor has LSE where caspal is executed. Its registers are
    // pairs that begin with an even number.
    let fine = unsafe {
        if is_aarch64_feature_detected!("lse") {
            marked_asm!("caspal x4, x5, x6, x7, [{d}]"; d = in(reg) at, in("x6") new[0], in("x7") new[1],
                inout("x4") was[0], inout("x5") was[1],)
        } else {
            // Bytes that differ are stored as they were, because only then was the load atomic.
            marked_asm!("2:", "ldaxp {a}, {b}, [{d}]", "cmp {a}, {ca}", "ccmp {b}, {cb}, #0, eq",
                "csel {x}, {na}, {a}, eq", "csel {y}, {nb}, {b}, eq", "stlxp {t:w}, {x}, {y}, [{d}]",
                "cbnz {t:w}, 2b"; d = in(reg) at, ca = in(reg) expected[0], cb = in(reg) expected[1],
                na = in(reg) new[0], nb = in(reg) new[1], a = out(reg) was[0], b = out(reg) was[1],
                x = out(reg) _, y = out(reg) _, t = out(reg) _,)
        }
    };
    fine.then(|| from_words(was))
}

/// Without LSE2 this is a compare-and-swap. Only if the bytes are mapped read-only, which it learns by a page
/// fault, or if page faults are not handled, it loads two halves.
///
/// # Safety
/// The conditions of [`super::load`].
#[inline]
pub(crate) unsafe fn load(at: *const u128) -> Option<u128> {
    // SAFETY: the caller's promise; a page fault of the compare-and-swap is handled.
    unsafe {
        if is_aarch64_feature_detected!("lse2") {
            return load_pair(at);
        }
        if page_fault::is_installed()
            && let Some(value) = compare_swap(at.cast_mut(), 0, 0)
        {
            return Some(value);
        }
        let first = word::load(at.cast())?;
        Some(from_words([first, word::load(at.cast::<u64>().add(1))?]))
    }
}

/// # Safety
/// The conditions of [`super::load_writable`].
#[inline]
pub(crate) unsafe fn load_writable(at: *mut u128) -> Option<u128> {
    // SAFETY: the caller's promise.
    unsafe { if is_aarch64_feature_detected!("lse2") { load_pair(at) } else { compare_swap(at, 0, 0) } }
}

/// Loads with Acquire ordering, all 16 bytes at once on processors with LSE2.
///
/// # Safety
/// The conditions of [`super::load`].
#[inline]
unsafe fn load_pair(at: *const u128) -> Option<u128> {
    let mut value = [0; 2];
    // SAFETY: the caller's promise.
    let fine = unsafe {
        marked_asm!("ldp {a}, {b}, [{s}]", "dmb ishld"; s = in(reg) at, a = out(reg) value[0],
            b = out(reg) value[1],)
    };
    fine.then(|| from_words(value))
}

/// # Safety
/// The conditions of [`super::store`].
#[inline]
pub(crate) unsafe fn store(at: *mut u128, value: u128) -> bool {
    let [first, second] = words(value);
    // SAFETY: the caller's promise.
    unsafe {
        if is_aarch64_feature_detected!("lse2") {
            marked_asm!("dmb ish", "stp {a}, {b}, [{d}]"; d = in(reg) at, a = in(reg) first,
                b = in(reg) second,)
        } else {
            marked_asm!("2:", "ldxp {x}, {y}, [{d}]", "stlxp {t:w}, {a}, {b}, [{d}]", "cbnz {t:w}, 2b";
                d = in(reg) at, a = in(reg) first, b = in(reg) second, x = out(reg) _, y = out(reg) _,
                t = out(reg) _,)
        }
    }
}
