//! Copies on any machine: atomics on the shared side, plain accesses on the caller's side. Each load has
//! Acquire and each store has Release ordering, so both run in rising order on every machine.

use super::staged;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

/// Returns the steps of a copy in rising order, as (offset, whether it is a word). Words are aligned on the
/// shared side. There are none under Miri, which forbids races between atomics of different widths.
fn steps(shared: *const u8, len: usize) -> impl Iterator<Item = (usize, bool)> {
    let head = if cfg!(miri) { len } else { shared.align_offset(8).min(len) };
    let words = (len - head) / 8;
    let tail = head + words * 8;
    let byte = |at| (at, false);
    (0..head)
        .map(byte)
        .chain((0..words).map(move |word| (head + word * 8, true)))
        .chain((tail..len).map(byte))
}

/// # Safety
/// The conditions of [`super::fetch`].
pub(crate) unsafe fn fetch(dst: *mut u8, src: *const u8, len: usize) -> bool {
    let src = src.cast_mut();
    // SAFETY: every step lies within `len`, words are aligned, and the shared side is read by atomics only.
    unsafe {
        for (at, word) in steps(src, len) {
            if word {
                let value = AtomicU64::from_ptr(src.add(at).cast()).load(Ordering::Acquire);
                dst.add(at).cast::<u64>().write_unaligned(value);
            } else {
                dst.add(at).write(AtomicU8::from_ptr(src.add(at)).load(Ordering::Acquire));
            }
        }
    }
    true
}

/// # Safety
/// The conditions of [`super::scatter`].
pub(crate) unsafe fn scatter(dst: *mut u8, src: *const u8) -> bool {
    // SAFETY: the caller's promise.
    unsafe { place(dst, src, super::SCATTERED) }
}

/// Orders earlier stores before all later ones.
pub(crate) fn settle() {
    fence(Ordering::Release);
}

/// # Safety
/// The conditions of [`super::place`].
pub(crate) unsafe fn place(dst: *mut u8, src: *const u8, len: usize) -> bool {
    // SAFETY: as in `fetch`, with source and destination exchanged.
    unsafe {
        for (at, word) in steps(dst, len) {
            if word {
                let value = src.add(at).cast::<u64>().read_unaligned();
                AtomicU64::from_ptr(dst.add(at).cast()).store(value, Ordering::Release);
            } else {
                AtomicU8::from_ptr(dst.add(at)).store(src.add(at).read(), Ordering::Release);
            }
        }
    }
    true
}

/// # Safety
/// The conditions of [`super::transfer`].
pub(crate) unsafe fn transfer(dst: *mut u8, src: *const u8, len: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { staged::transfer(dst, src, len, fetch, place) }
}
