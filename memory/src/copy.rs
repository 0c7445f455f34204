//! The DMA copy: moves bytes that others may be reading or writing at the same moment.
//!
//! `memcpy` may not: a data race is undefined behaviour, whatever the bytes are later used for. Here the moves are
//! machine instructions inside `asm!`, so the compiler knows nothing of the memory but that something may have
//! happened to it, as with a device. Under Miri and on other machines they are relaxed atomics.
//!
//! **Order.** Stores are made in rising order of address and the last byte of a copy becomes visible last, as
//! programs that poll the end of a buffer expect of a NIC (`ib_write_lat` is one). What lies before may be stored in
//! any order by the string instruction. A 16-byte unit that is 16-byte aligned on both sides is not torn on machines
//! with AVX; nothing wider is promised.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use moves as imp;
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
use portable as imp;

/// Copies shared bytes into the caller's own.
///
/// # Safety
/// `dst` is valid for writes of `len` bytes and nobody else touches it; `src` is mapped and readable for `len`
/// bytes, whoever else uses it.
#[inline(always)]
pub(crate) unsafe fn fetch(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { imp::fetch(dst, src, len) }
}

/// Copies the caller's own bytes into shared ones.
///
/// # Safety
/// `src` is valid for reads of `len` bytes and nobody writes it; `dst` is mapped and writable for `len` bytes,
/// whoever else uses it.
#[inline(always)]
pub(crate) unsafe fn place(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { imp::place(dst, src, len) }
}

/// As [`place`], past the caches: for bulk whose reader comes later.
///
/// # Safety
/// As [`place`].
#[inline]
pub(crate) unsafe fn place_streaming(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { imp::place_streaming(dst, src, len) }
}

/// Copies shared bytes to shared bytes. If they overlap, what arrives is unspecified.
///
/// # Safety
/// Both are mapped for `len` bytes, `dst` writable, whoever else uses them.
#[inline]
pub(crate) unsafe fn transfer(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { imp::transfer(dst, src, len) }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod moves {
    use std::arch::asm;

    pub use self::{copy as fetch, copy as place, copy as transfer};

    /// Above this many bytes the string instruction wins.
    const STRING: usize = 1024;

    macro_rules! moves {
        ($($name:ident: $class:ident $load:literal $store:literal;)*) => {$(
            /// One move through a register.
            ///
            /// # Safety
            /// Source and destination are mapped for the width of the register.
            #[inline(always)]
            unsafe fn $name(dst: *mut u8, src: *const u8) {
                // SAFETY: the caller's promise; no stack, no flags.
                unsafe {
                    asm!($load, $store, d = in(reg) dst, s = in(reg) src, v = out($class) _,
                        options(nostack, preserves_flags));
                }
            }
        )*};
    }

    moves! {
        move1: reg_byte "mov {v}, [{s}]" "mov [{d}], {v}";
        move2: reg "mov {v:x}, [{s}]" "mov [{d}], {v:x}";
        move4: reg "mov {v:e}, [{s}]" "mov [{d}], {v:e}";
        move8: reg "mov {v}, [{s}]" "mov [{d}], {v}";
        move16: xmm_reg "movups {v}, [{s}]" "movups [{d}], {v}";
    }

    /// # Safety
    /// Source and destination are mapped for 64 bytes.
    #[inline(always)]
    pub unsafe fn move64(dst: *mut u8, src: *const u8) {
        // SAFETY: the caller's promise; no stack, no flags.
        unsafe {
            asm!(
                "movups {a}, [{s}]", "movups {b}, [{s} + 16]", "movups {c}, [{s} + 32]", "movups {e}, [{s} + 48]",
                "movups [{d}], {a}", "movups [{d} + 16], {b}", "movups [{d} + 32], {c}", "movups [{d} + 48], {e}",
                d = in(reg) dst, s = in(reg) src,
                a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, e = out(xmm_reg) _,
                options(nostack, preserves_flags)
            );
        }
    }

    /// # Safety
    /// Source and destination are mapped for `len` bytes.
    #[inline(always)]
    pub unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
        if len == 64 {
            // SAFETY: the caller's promise.
            return unsafe { move64(dst, src) };
        }
        // SAFETY: the caller's promise.
        unsafe { copy_any(dst, src, len) }
    }

    /// Two moves that overlap in the middle serve every length between one width and two.
    ///
    /// # Safety
    /// As [`copy`].
    unsafe fn copy_any(dst: *mut u8, src: *const u8, len: usize) {
        macro_rules! both_ends {
            ($move:ident, $width:literal) => {{
                // SAFETY: width <= len <= 2 * width, so both moves lie within the `len` mapped bytes.
                unsafe {
                    $move(dst, src);
                    $move(dst.add(len - $width), src.add(len - $width));
                }
            }};
        }
        match len {
            0 => {}
            // SAFETY: one byte is mapped.
            1 => unsafe { move1(dst, src) },
            2..=4 => both_ends!(move2, 2),
            5..=8 => both_ends!(move4, 4),
            9..=16 => both_ends!(move8, 8),
            17..=32 => both_ends!(move16, 16),
            33..=64 => {
                // SAFETY: 32 < len <= 64: the four moves cover it and stay within.
                unsafe {
                    move16(dst, src);
                    move16(dst.add(16), src.add(16));
                    move16(dst.add(len - 32), src.add(len - 32));
                    move16(dst.add(len - 16), src.add(len - 16));
                }
            }
            65..=128 => both_ends!(move64, 64),
            129..=STRING => {
                let mut at = 0;
                while at + 64 < len {
                    // SAFETY: at + 64 < len.
                    unsafe { move64(dst.add(at), src.add(at)) };
                    at += 64;
                }
                // SAFETY: 64 < len; the last 64 bytes.
                unsafe { move64(dst.add(len - 64), src.add(len - 64)) };
            }
            _ => {
                // SAFETY: 64 < len; the string covers all but the last 64 bytes, which are stored after it.
                unsafe {
                    asm!("rep movsb", inout("rcx") len - 64 => _, inout("rdi") dst => _, inout("rsi") src => _,
                        options(nostack, preserves_flags));
                    move64(dst.add(len - 64), src.add(len - 64));
                }
            }
        }
    }

    /// # Safety
    /// As [`copy`].
    pub unsafe fn place_streaming(dst: *mut u8, src: *const u8, len: usize) {
        if len < 256 {
            // SAFETY: the caller's promise.
            return unsafe { copy(dst, src, len) };
        }
        // Streaming stores want whole lines: the ragged head and the last line go the ordinary way.
        let head = dst.align_offset(64);
        let lines = (len - head - 1) / 64;
        // SAFETY: head < 64 < len, and head + 64 * lines < len <= head + 64 * (lines + 1).
        unsafe {
            copy(dst, src, head);
            let (mut d, mut s) = (dst.add(head), src.add(head));
            for _ in 0..lines {
                asm!(
                    "movups {a}, [{s}]", "movups {b}, [{s} + 16]", "movups {c}, [{s} + 32]", "movups {e}, [{s} + 48]",
                    "movntps [{d}], {a}", "movntps [{d} + 16], {b}", "movntps [{d} + 32], {c}", "movntps [{d} + 48], {e}",
                    d = in(reg) d, s = in(reg) s,
                    a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, e = out(xmm_reg) _,
                    options(nostack, preserves_flags)
                );
                d = d.add(64);
                s = s.add(64);
            }
            // Streaming stores are weakly ordered; whoever sees a later store must see them.
            asm!("sfence", options(nostack, preserves_flags));
            copy(d, s, len - head - 64 * lines);
        }
    }
}

/// Relaxed atomics on the shared side, plain accesses on the caller's own.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod portable {
    use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

    /// Bytes that go one by one before eight at a time may start, or all of them if the two sides never align.
    /// Under Miri all: it forbids races between atomics of different widths.
    fn head(a: *const u8, b: *const u8, len: usize) -> usize {
        if cfg!(miri) || (a as usize ^ b as usize) & 7 != 0 { len } else { a.align_offset(8).min(len) }
    }

    /// The steps of a copy: (offset, is it a word). The last byte is left out.
    fn steps(a: *const u8, b: *const u8, len: usize) -> impl Iterator<Item = (usize, bool)> {
        let body = len.saturating_sub(1);
        let head = head(a, b, body);
        let words = (body - head) / 8;
        let tail = head + words * 8;
        (0..head)
            .map(|at| (at, false))
            .chain((0..words).map(move |w| (head + w * 8, true)))
            .chain((tail..body).map(|at| (at, false)))
    }

    /// # Safety
    /// As [`super::fetch`].
    pub unsafe fn fetch(dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: every step lies within `len`; words only where both sides are 8-aligned; the shared side is
        // accessed by atomics only.
        unsafe {
            for (at, word) in steps(dst, src, len) {
                if word {
                    let value = AtomicU64::from_ptr(src.add(at).cast_mut().cast()).load(Ordering::Relaxed);
                    dst.add(at).cast::<u64>().write(value);
                } else {
                    dst.add(at).write(AtomicU8::from_ptr(src.add(at).cast_mut()).load(Ordering::Relaxed));
                }
            }
            if let Some(last) = len.checked_sub(1) {
                dst.add(last).write(AtomicU8::from_ptr(src.add(last).cast_mut()).load(Ordering::Relaxed));
            }
        }
    }

    /// # Safety
    /// As [`super::place`].
    pub unsafe fn place(dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: as in `fetch`, the other way round.
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
    }

    /// # Safety
    /// As [`super::transfer`].
    pub unsafe fn transfer(dst: *mut u8, src: *const u8, len: usize) {
        let mut line = [0u8; 64];
        let mut at = 0;
        while at < len {
            let part = (len - at).min(line.len());
            // SAFETY: at + part <= len, and `line` is ours.
            unsafe {
                fetch(line.as_mut_ptr(), src.add(at), part);
                place(dst.add(at), line.as_ptr(), part);
            }
            at += part;
        }
    }

    pub use self::place as place_streaming;
}
