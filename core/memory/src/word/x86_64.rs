//! Atomics of x86-64: single instructions, whose page faults are handled.

use crate::copy;
use crate::page_fault::{entry, guarded_asm};

/// Executes one instruction. `fault` is set before the instruction and cleared after it, so a page fault
/// leaves it set. (An asm block with outputs cannot have a label operand; after a fault execution therefore
/// continues behind the block's own instructions.)
macro_rules! marked_asm {
    ($code:literal; $($operands:tt)*) => {{
        let fault: u32;
        std::arch::asm!("mov {fault:e}, 1", "20:", $code, "21:", "mov {fault:e}, 0", "22:", entry!("22b"),
            fault = out(reg) fault, $($operands)* options(nostack));
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
    let fine = unsafe { marked_asm!("mov {v}, [{s}]"; v = out(reg) value, s = in(reg) at,) };
    fine.then_some(value)
}

/// # Safety
/// The conditions of [`super::fetch`].
#[inline(always)]
pub(crate) unsafe fn fetch(out: *mut u8, at: *const u64) -> bool {
    // SAFETY: the caller's promise; 8 aligned bytes are loaded at once.
    unsafe { copy::fetch_word(out, at.cast()) }
}

/// # Safety
/// The conditions of [`super::store`].
#[inline(always)]
pub(crate) unsafe fn store(at: *mut u64, value: u64) -> bool {
    // SAFETY: the caller's promise; no stack, no flags.
    unsafe {
        guarded_asm!("mov [{d}], {v}",; { return false }; d = in(reg) at, v = in(reg) value,
            options(nostack, preserves_flags));
    }
    true
}

/// # Safety
/// The conditions of [`super::compare_swap`].
#[inline(always)]
pub(crate) unsafe fn compare_swap(at: *mut u64, compare: u64, swap: u64) -> Option<u64> {
    let was;
    // SAFETY: the caller's promise.
    let fine = unsafe {
        marked_asm!("lock cmpxchg [{d}], {v}"; d = in(reg) at, v = in(reg) swap, inout("rax") compare => was,)
    };
    fine.then_some(was)
}

/// # Safety
/// The conditions of [`super::fetch_add`].
#[inline(always)]
pub(crate) unsafe fn fetch_add(at: *mut u64, add: u64) -> Option<u64> {
    let was;
    // SAFETY: the caller's promise.
    let fine = unsafe { marked_asm!("lock xadd [{d}], {v}"; d = in(reg) at, v = inout(reg) add => was,) };
    fine.then_some(was)
}
