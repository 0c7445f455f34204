//! Copies between two shared sides by way of a private buffer.

use std::mem::MaybeUninit;

/// Bytes of the private buffer, and of a line.
const STAGE: usize = 512;
const LINE: usize = 64;

/// Copies by `fetch` and `place` in pieces that end at a line of the source, so that no line is fetched in
/// two pieces.
///
/// # Safety
/// The conditions of [`super::transfer`]; `fetch` and `place` are those of this module's parent.
pub(crate) unsafe fn transfer(
    dst: *mut u8,
    src: *const u8,
    len: usize,
    fetch: unsafe fn(*mut u8, *const u8, usize) -> bool,
    place: unsafe fn(*mut u8, *const u8, usize) -> bool,
) -> bool {
    let mut stage = [MaybeUninit::<u8>::uninit(); STAGE];
    let stage = stage.as_mut_ptr().cast::<u8>();
    let mut at = 0;
    while at < len {
        let part = (STAGE - (src as usize + at) % LINE).min(len - at);
        // SAFETY: at + part <= len, part <= STAGE, and `place` reads only what `fetch` has written.
        unsafe {
            if !(fetch(stage, src.add(at), part) && place(dst.add(at), stage, part)) {
                return false;
            }
        }
        at += part;
    }
    true
}
