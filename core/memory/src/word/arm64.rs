//! Atomics of ARM64, whose page faults are handled: single instructions, or loops of exclusive loads and
//! stores on processors without LSE (FEAT_LSE, ARMv8.1).

use std::arch::is_aarch64_feature_detected;

/// Executes instructions. `fault` is set before them and cleared after them, so a page fault leaves it set.
/// (An asm block with outputs cannot have a label operand; after a fault execution therefore continues
/// behind the block's own instructions.)
macro_rules! marked_asm {
    ($($code:literal),+; $($operands:tt)*) => {{
        let fault: u64;
        std::arch::asm!(".arch_extension lse", "mov {fault:w}, #1", "20:", $($code,)+ "21:", "mov {fault:w}, #0",
            "22:", crate::page_fault::entry!("22b"), fault = out(reg) fault, $($operands)* options(nostack));
        fault == 0
    }};
}
pub(crate) use marked_asm;

/// # Safety
/// The conditions of [`super::load`].
#[inline(always)]
pub(crate) unsafe fn load(at: *const u64) -> Option<u64> {
    let value;
    // SAFETY: the caller's promise.
    let fine = unsafe { marked_asm!("ldar {v}, [{s}]"; v = out(reg) value, s = in(reg) at,) };
    fine.then_some(value)
}

/// # Safety
/// The conditions of [`super::fetch`].
#[inline(always)]
pub(crate) unsafe fn fetch(out: *mut u8, at: *const u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe { load(at).map(|value| out.cast::<u64>().write_unaligned(value)).is_some() }
}

/// # Safety
/// The conditions of [`super::store`].
#[inline(always)]
pub(crate) unsafe fn store(at: *mut u64, value: u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe { marked_asm!("stlr {v}, [{d}]"; d = in(reg) at, v = in(reg) value,) }
}

/// # Safety
/// The conditions of [`super::compare_swap`].
#[inline]
pub(crate) unsafe fn compare_swap(at: *mut u64, compare: u64, swap: u64) -> Option<u64> {
    let was: u64;
    // SAFETY: the caller's promise, and the processor has LSE where casal is executed.
    let fine = unsafe {
        if is_aarch64_feature_detected!("lse") {
            marked_asm!("casal {c}, {v}, [{d}]"; d = in(reg) at, v = in(reg) swap, c = inout(reg) compare => was,)
        } else {
            marked_asm!("2:", "ldaxr {w}, [{d}]", "cmp {w}, {c}", "b.ne 3f", "stlxr {t:w}, {v}, [{d}]",
                "cbnz {t:w}, 2b", "3:"; d = in(reg) at, v = in(reg) swap, c = in(reg) compare,
                w = out(reg) was, t = out(reg) _,)
        }
    };
    fine.then_some(was)
}

/// # Safety
/// The conditions of [`super::fetch_add`].
#[inline]
pub(crate) unsafe fn fetch_add(at: *mut u64, add: u64) -> Option<u64> {
    let was: u64;
    // SAFETY: the caller's promise, and the processor has LSE where ldaddal is executed.
    let fine = unsafe {
        if is_aarch64_feature_detected!("lse") {
            marked_asm!("ldaddal {v}, {w}, [{d}]"; d = in(reg) at, v = in(reg) add, w = out(reg) was,)
        } else {
            marked_asm!("2:", "ldaxr {w}, [{d}]", "add {n}, {w}, {v}", "stlxr {t:w}, {n}, [{d}]",
                "cbnz {t:w}, 2b"; d = in(reg) at, v = in(reg) add, w = out(reg) was, n = out(reg) _,
                t = out(reg) _,)
        }
    };
    fine.then_some(was)
}
