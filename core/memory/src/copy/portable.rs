//! Copies on any machine: relaxed atomics on the shared side, plain accesses on the caller's side.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

/// Returns the steps of a copy without its last byte, as (offset, whether it is a word). Words are used
/// only where both sides are 8-aligned, and never under Miri, which forbids races between atomics of
/// different widths.
fn steps(a: *const u8, b: *const u8, len: usize) -> impl Iterator<Item = (usize, bool)> {
    let body = len.saturating_sub(1);
    let never = cfg!(miri) || (a as usize ^ b as usize) & 7 != 0;
    let head = if never { body } else { a.align_offset(8).min(body) };
    let words = (body - head) / 8;
    let tail = head + words * 8;
    let byte = |at| (at, false);
    (0..head)
        .map(byte)
        .chain((0..words).map(move |word| (head + word * 8, true)))
        .chain((tail..body).map(byte))
}

/// # Safety
/// The conditions of [`super::fetch`].
pub unsafe fn fetch(dst: *mut u8, src: *const u8, len: usize) -> bool {
    let src = src.cast_mut();
    // SAFETY: every step lies within `len`, words are aligned, and the shared side is read by atomics only.
    unsafe {
        for (at, word) in steps(dst, src, len) {
            if word {
                let value = AtomicU64::from_ptr(src.add(at).cast()).load(Ordering::Relaxed);
                dst.add(at).cast::<u64>().write(value);
            } else {
                dst.add(at).write(AtomicU8::from_ptr(src.add(at)).load(Ordering::Relaxed));
            }
        }
        if let Some(last) = len.checked_sub(1) {
            dst.add(last).write(AtomicU8::from_ptr(src.add(last)).load(Ordering::Relaxed));
        }
    }
    true
}

/// # Safety
/// The conditions of [`super::scatter`].
pub unsafe fn scatter(dst: *mut u8, src: *const u8) -> bool {
    // SAFETY: the caller's promise.
    unsafe { place(dst, src, super::SCATTERED) }
}

/// Orders earlier stores before all later ones.
pub fn settle() {
    fence(Ordering::Release);
}

/// # Safety
/// The conditions of [`super::place`].
pub unsafe fn place(dst: *mut u8, src: *const u8, len: usize) -> bool {
    // SAFETY: as in `fetch`, with source and destination exchanged.
    unsafe {
        for (at, word) in steps(dst, src, len) {
            if word {
                let value = src.add(at).cast::<u64>().read();
                AtomicU64::from_ptr(dst.add(at).cast()).store(value, Ordering::Relaxed);
            } else {
                AtomicU8::from_ptr(dst.add(at)).store(src.add(at).read(), Ordering::Relaxed);
            }
        }
        if let Some(last) = len.checked_sub(1) {
            fence(Ordering::Release);
            AtomicU8::from_ptr(dst.add(last)).store(src.add(last).read(), Ordering::Relaxed);
        }
    }
    true
}

/// # Safety
/// The conditions of [`super::transfer`].
pub unsafe fn transfer(dst: *mut u8, src: *const u8, len: usize) -> bool {
    let mut line = [0u8; 64];
    let mut at = 0;
    while at < len {
        let part = (len - at).min(line.len());
        // SAFETY: at + part <= len, and `line` is ours.
        unsafe {
            if !(fetch(line.as_mut_ptr(), src.add(at), part) && place(dst.add(at), line.as_ptr(), part)) {
                return false;
            }
        }
        at += part;
    }
    true
}
