//! Copies on ARM64 by inline assembly.
//!
//! ARM64 reorders loads with loads and stores with stores unless they are told not to be, so the order that
//! `copy` promises is made here:
//!
//! - **Loads** of one line are ordered by address dependencies: the address of a load contains zero times
//!   the value that was loaded before it. Lines do not depend on each other, so that the processor fetches
//!   many of them at a time, which barriers or `ldar` would prevent. A barrier at the end orders all loads
//!   of a copy before what follows.
//! - **Stores** of up to [`ORDERED`] bytes are store-releases of a word each. A longer copy stores all but
//!   its end in any order.
//!
//! A word is aligned on the shared side, where it must not be torn. The private side needs no alignment.

use super::staged;
use crate::page_fault::guarded_asm;
use std::arch::asm;

/// Largest number of bytes that are stored in rising order.
const ORDERED: usize = 4096;

/// Bytes of a line, within which loads run in rising order.
const LINE: usize = 64;

/// Copies `len` bytes, a multiple of the instructions' width and not zero, in rising order. Returns false on
/// a page fault. x9 is the destination, x10 the source, x11 the number of bytes left, x12 the value.
macro_rules! in_order {
    ($dst:expr, $src:expr, $len:expr; $($code:literal,)+) => {
        guarded_asm!($($code,)+ "b.ne 2b",; { return false };
            in("x9") $dst, in("x10") $src, in("x11") $len,
            lateout("x9") _, lateout("x10") _, lateout("x11") _, out("x12") _, out("x13") _,
            options(nostack))
    };
}

/// # Safety
/// The conditions of [`super::fetch`].
pub(crate) unsafe fn fetch(dst: *mut u8, src: *const u8, len: usize) -> bool {
    let head = src.align_offset(8).min(len);
    let words = (len - head) & !7;
    let tail = len - head - words;
    // SAFETY: the three parts lie within `len` bytes, and the words are aligned.
    unsafe {
        let fine = fetch_bytes(dst, src, head)
            && fetch_words(dst.add(head), src.add(head), words)
            && (tail == 0 || fetch_bytes(dst.add(len - tail), src.add(len - tail), tail));
        after_loads();
        fine
    }
}

/// Orders earlier loads before all later loads and stores.
#[inline(always)]
fn after_loads() {
    // SAFETY: a barrier.
    unsafe { asm!("dmb ishld", options(nostack, preserves_flags)) };
}

/// Fetches less than a word, after all earlier loads and before all later ones.
///
/// # Safety
/// The conditions of [`super::fetch`].
#[inline(always)]
unsafe fn fetch_bytes(dst: *mut u8, src: *const u8, len: usize) -> bool {
    if len > 0 {
        after_loads();
        // SAFETY: the caller's promise; no stack.
        unsafe {
            in_order!(dst, src, len; "mov x13, xzr", "2:", "ldrb w12, [x10, x13]", "eor x13, x12, x12",
                "add x10, x10, #1", "strb w12, [x9], #1", "subs x11, x11, #1",);
        }
        after_loads();
    }
    true
}

/// Fetches aligned words.
///
/// # Safety
/// The conditions of [`super::fetch`]; `src` is 8-byte aligned, and `len` is a multiple of 8.
#[inline(always)]
unsafe fn fetch_words(dst: *mut u8, src: *const u8, len: usize) -> bool {
    // The words in front of the first whole line, and the whole lines.
    let first = src.align_offset(LINE).min(len);
    let lines = (len - first) & !(LINE - 1);
    let last = len - first - lines;
    // SAFETY: the three parts lie within `len` bytes, and the lines are aligned.
    unsafe {
        (first == 0 || fetch_part_of_line(dst, src, first))
            && (lines == 0 || fetch_lines(dst.add(first), src.add(first), lines))
            && (last == 0 || fetch_part_of_line(dst.add(len - last), src.add(len - last), last))
    }
}

/// # Safety
/// The conditions of [`fetch_words`]; `len` is not zero.
#[inline(always)]
unsafe fn fetch_part_of_line(dst: *mut u8, src: *const u8, len: usize) -> bool {
    // SAFETY: the caller's promise; no stack.
    unsafe {
        in_order!(dst, src, len; "mov x13, xzr", "2:", "ldr x12, [x10, x13]", "eor x13, x12, x12",
            "add x10, x10, #8", "str x12, [x9], #8", "subs x11, x11, #8",);
    }
    true
}

/// Fetches whole lines. In each the first word is loaded before the next six, and those before the last.
///
/// # Safety
/// The conditions of [`super::fetch`]; `src` is 64-byte aligned, and `len` is a multiple of 64, not zero.
#[inline(always)]
unsafe fn fetch_lines(dst: *mut u8, src: *const u8, len: usize) -> bool {
    // SAFETY: the caller's promise; no stack.
    unsafe {
        guarded_asm!(
            "2:",
            "ldr x12, [x10]",
            "eor x13, x12, x12", "add x13, x10, x13",
            "ldp x14, x15, [x13, #8]", "ldp x0, x1, [x13, #24]", "ldp x2, x3, [x13, #40]",
            "orr x4, x14, x15", "orr x5, x0, x1", "orr x6, x2, x3", "orr x4, x4, x5", "orr x4, x4, x6",
            "eor x4, x4, x4", "add x4, x10, x4",
            "ldr x5, [x4, #56]",
            "add x10, x10, #64",
            "stp x12, x14, [x9]", "stp x15, x0, [x9, #16]", "stp x1, x2, [x9, #32]", "stp x3, x5, [x9, #48]",
            "add x9, x9, #64", "subs x11, x11, #64", "b.ne 2b",;
            { return false };
            in("x9") dst, in("x10") src, in("x11") len,
            lateout("x9") _, lateout("x10") _, lateout("x11") _, out("x12") _, out("x13") _, out("x14") _,
            out("x15") _, out("x0") _, out("x1") _, out("x2") _, out("x3") _, out("x4") _, out("x5") _,
            out("x6") _, options(nostack)
        );
    }
    true
}

/// # Safety
/// The conditions of [`super::place`].
pub(crate) unsafe fn place(dst: *mut u8, src: *const u8, len: usize) -> bool {
    let head = dst.align_offset(8).min(len);
    let words = (len - head) & !7;
    let tail = len - head - words;
    // All but the last word of a long copy. The release of that word orders these stores before it.
    let loose = if len > ORDERED { (words - 8) & !31 } else { 0 };
    // SAFETY: the four parts lie within `len` bytes, and the words are aligned.
    unsafe {
        place_bytes(dst, src, head)
            && (loose == 0 || place_in_any_order(dst.add(head), src.add(head), loose))
            && place_words(dst.add(head + loose), src.add(head + loose), words - loose)
            && place_bytes(dst.add(len - tail), src.add(len - tail), tail)
    }
}

/// # Safety
/// The conditions of [`super::place`].
#[inline(always)]
unsafe fn place_bytes(dst: *mut u8, src: *const u8, len: usize) -> bool {
    if len > 0 {
        // SAFETY: the caller's promise; no stack.
        unsafe {
            in_order!(dst, src, len; "2:", "ldrb w12, [x10], #1", "stlrb w12, [x9]", "add x9, x9, #1",
                "subs x11, x11, #1",);
        }
    }
    true
}

/// # Safety
/// The conditions of [`super::place`]; `dst` is 8-byte aligned, and `len` is a multiple of 8.
#[inline(always)]
unsafe fn place_words(dst: *mut u8, src: *const u8, len: usize) -> bool {
    if len > 0 {
        // SAFETY: the caller's promise; no stack.
        unsafe {
            in_order!(dst, src, len; "2:", "ldr x12, [x10], #8", "stlr x12, [x9]", "add x9, x9, #8",
                "subs x11, x11, #8",);
        }
    }
    true
}

/// Places bytes after all earlier stores, and in any order among themselves.
///
/// # Safety
/// The conditions of [`super::place`]; `len` is a multiple of 32 and not zero.
#[inline(always)]
unsafe fn place_in_any_order(dst: *mut u8, src: *const u8, len: usize) -> bool {
    // SAFETY: the caller's promise; no stack.
    unsafe {
        guarded_asm!(
            "dmb ishst",
            "2:", "ldp q0, q1, [x10], #32", "stp q0, q1, [x9], #32", "subs x11, x11, #32", "b.ne 2b",;
            { return false };
            in("x9") dst, in("x10") src, in("x11") len,
            lateout("x9") _, lateout("x10") _, lateout("x11") _, out("v0") _, out("v1") _, options(nostack)
        );
    }
    true
}

/// # Safety
/// The conditions of [`super::scatter`].
#[inline(always)]
pub(crate) unsafe fn scatter(dst: *mut u8, src: *const u8) -> bool {
    // SAFETY: the caller's promise; no stack, no flags.
    unsafe {
        guarded_asm!(
            "ldp q0, q1, [{s}]", "ldp q2, q3, [{s}, #32]", "ldp q4, q5, [{s}, #64]", "ldp q6, q7, [{s}, #96]",
            "stnp q0, q1, [{d}]", "stnp q2, q3, [{d}, #32]", "stnp q4, q5, [{d}, #64]", "stnp q6, q7, [{d}, #96]",;
            { return false };
            d = in(reg) dst, s = in(reg) src,
            out("v0") _, out("v1") _, out("v2") _, out("v3") _, out("v4") _, out("v5") _, out("v6") _, out("v7") _,
            options(nostack, preserves_flags)
        );
    }
    true
}

/// Orders earlier stores before all later ones.
#[inline]
pub(crate) fn settle() {
    // SAFETY: a barrier.
    unsafe { asm!("dmb ishst", options(nostack, preserves_flags)) };
}

/// # Safety
/// The conditions of [`super::transfer`].
pub(crate) unsafe fn transfer(dst: *mut u8, src: *const u8, len: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { staged::transfer(dst, src, len, fetch, place) }
}
