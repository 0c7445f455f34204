//! Copies on x86-64 by inline assembly. Thresholds come from `benches/memory.rs` on Zen 4 and from
//! measurements on Sapphire Rapids:
//!
//! - Up to 64 bytes nothing beats SSE moves. Above, 32-byte moves match or beat memcpy on Zen 4 at every
//!   alignment and size, except at 128 bytes, where they lose a nanosecond. Long copies use an aligned
//!   destination.
//! - `rep movsb` is never better on Zen 4. It is 25 times slower if the destination lies 1 to 63 bytes
//!   after the source modulo 4096 (glibc's memcpy has the same problem). On Intel it wins from 4 KiB on.
//! - AVX-512 is not used: without `vzeroupper` it halved the speed of the surrounding code, and with it
//!   there is no gain.
//! - For copies past the caches of two lines each, 32-byte stores are a sixth faster than 16-byte stores
//!   (2.0 ns instead of 2.4 ns for shuffled values).
//! - Streaming stores do not help messages of 1 MiB into cold memory (0.8 to 0.9 times the speed of the
//!   copies here). They help only a single long copy.

use std::arch::asm;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::page_fault::guarded_asm;

pub(crate) use self::{copy as fetch, copy as place, copy as transfer};

// The registers are named, because an asm block with a label operand has no outputs.
macro_rules! moves {
    ($($name:ident: $register:tt $load:literal $store:literal;)*) => {$(
        /// Moves one word through a register. Returns false on a page fault.
        ///
        /// # Safety
        /// Source and destination are mapped for the width of the register, or page faults are handled.
        #[inline(always)]
        pub(crate) unsafe fn $name(dst: *mut u8, src: *const u8) -> bool {
            // SAFETY: the caller's promise; no stack, no flags.
            unsafe {
                guarded_asm!($load, $store,; { return false }; d = in(reg) dst, s = in(reg) src,
                    out($register) _, options(nostack, preserves_flags));
            }
            true
        }
    )*};
}

moves! {
    move1: "rax" "mov al, [{s}]" "mov [{d}], al";
    move2: "rax" "mov ax, [{s}]" "mov [{d}], ax";
    move4: "rax" "mov eax, [{s}]" "mov [{d}], eax";
    move8: "rax" "mov rax, [{s}]" "mov [{d}], rax";
    move16: "xmm0" "movups xmm0, [{s}]" "movups [{d}], xmm0";
}

/// `asm!` that uses ymm registers and leaves their upper halves clean: otherwise every following SSE
/// instruction would be delayed. After a page fault the function that contains it returns false.
macro_rules! wide_asm {
    ($($code:literal,)* ; $($operands:tt)*) => {
        guarded_asm!($($code,)* "vzeroupper",;
            {
                // SAFETY: only code for machines with AVX uses this macro.
                unsafe { clean() };
                return false
            };
            $($operands)*
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _, out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(nostack))
    };
}

/// Cleans the upper halves of the ymm registers after a page fault.
///
/// # Safety
/// The machine has AVX.
#[cold]
unsafe fn clean() {
    // SAFETY: the caller's promise; no live value is in the upper halves.
    unsafe { asm!("vzeroupper", options(nostack, preserves_flags)) };
}

/// # Safety
/// Source and destination are mapped for 64 bytes.
#[inline(always)]
unsafe fn move64(dst: *mut u8, src: *const u8) -> bool {
    // SAFETY: the caller's promise; no stack, no flags.
    unsafe {
        guarded_asm!(
            "movups xmm0, [{s}]", "movups xmm1, [{s} + 16]", "movups xmm2, [{s} + 32]", "movups xmm3, [{s} + 48]",
            "movups [{d}], xmm0", "movups [{d} + 16], xmm1", "movups [{d} + 32], xmm2", "movups [{d} + 48], xmm3",;
            { return false };
            d = in(reg) dst, s = in(reg) src,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            options(nostack, preserves_flags)
        );
    }
    true
}

/// # Safety
/// Source and destination are mapped for `len` bytes.
#[inline(always)]
pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) -> bool {
    // 64 bytes are a WQE, a CQE and the usual benchmark payload: one comparison, or none if the length is a
    // constant.
    if len == 64 {
        // SAFETY: the caller's promise.
        unsafe { move64(dst, src) }
    } else {
        // SAFETY: the caller's promise.
        unsafe { copy_any(dst, src, len) }
    }
}

/// # Safety
/// Source and destination are mapped for 128 bytes and 32-byte aligned.
#[inline(always)]
pub(crate) unsafe fn scatter(dst: *mut u8, src: *const u8) -> bool {
    // SAFETY: the caller's promise, and the machine supports the chosen method.
    unsafe {
        match copy_method() {
            CopyMethod::Narrow => scatter_narrow(dst, src),
            CopyMethod::Wide | CopyMethod::String => scatter_wide(dst, src),
        }
    }
}

/// # Safety
/// The conditions of [`scatter`].
pub(super) unsafe fn scatter_narrow(dst: *mut u8, src: *const u8) -> bool {
    for at in [0, 64] {
        // SAFETY: the caller's promise; no stack, no flags.
        unsafe {
            guarded_asm!(
                "movaps xmm0, [{s}]", "movaps xmm1, [{s} + 16]", "movaps xmm2, [{s} + 32]", "movaps xmm3, [{s} + 48]",
                "movntps [{d}], xmm0", "movntps [{d} + 16], xmm1", "movntps [{d} + 32], xmm2", "movntps [{d} + 48], xmm3",;
                { return false };
                d = in(reg) dst.add(at), s = in(reg) src.add(at),
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                options(nostack, preserves_flags)
            );
        }
    }
    true
}

/// # Safety
/// The conditions of [`scatter`], and the machine has AVX.
#[inline(always)]
pub(super) unsafe fn scatter_wide(dst: *mut u8, src: *const u8) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        wide_asm!(
            "vmovaps ymm0, [{s}]", "vmovaps ymm1, [{s} + 32]", "vmovaps ymm2, [{s} + 64]", "vmovaps ymm3, [{s} + 96]",
            "vmovntps [{d}], ymm0", "vmovntps [{d} + 32], ymm1", "vmovntps [{d} + 64], ymm2", "vmovntps [{d} + 96], ymm3",
            ; s = in(reg) src, d = in(reg) dst,
        );
    }
    true
}

/// Orders streaming stores, which are otherwise unordered, before all later stores.
#[inline]
pub(crate) fn settle() {
    // SAFETY: a fence.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) };
}

/// # Safety
/// Source and destination are mapped for 32 bytes.
#[inline(always)]
unsafe fn move32(dst: *mut u8, src: *const u8) -> bool {
    // SAFETY: two halves of 32 bytes.
    unsafe { move16(dst, src) && move16(dst.add(16), src.add(16)) }
}

/// Copies up to 64 bytes. Two moves that overlap in the middle serve every length between one width and
/// two.
///
/// # Safety
/// The conditions of [`copy`].
unsafe fn copy_any(dst: *mut u8, src: *const u8, len: usize) -> bool {
    macro_rules! both_ends {
        ($move:ident, $width:literal) => {{
            // SAFETY: width <= len <= 2 * width, so both moves lie within the `len` mapped bytes.
            unsafe { $move(dst, src) && $move(dst.add(len - $width), src.add(len - $width)) }
        }};
    }
    // A tree of likely branches is cheaper than a jump table, which costs more than the copy.
    if len > 64 {
        // SAFETY: the caller's promise.
        unsafe { copy_long(dst, src, len) }
    } else if len > 32 {
        both_ends!(move32, 32)
    } else if len > 16 {
        both_ends!(move16, 16)
    } else if len >= 8 {
        both_ends!(move8, 8)
    } else if len >= 4 {
        both_ends!(move4, 4)
    } else if len >= 2 {
        both_ends!(move2, 2)
    } else if len == 1 {
        // SAFETY: one byte is mapped.
        unsafe { move1(dst, src) }
    } else {
        true
    }
}

/// # Safety
/// The conditions of [`copy`], and `len` > 64.
#[inline(never)]
unsafe fn copy_long(dst: *mut u8, src: *const u8, len: usize) -> bool {
    // SAFETY: the caller's promise, and the machine supports the chosen method.
    unsafe {
        match copy_method() {
            CopyMethod::Narrow => copy_narrow(dst, src, len),
            CopyMethod::String if len >= STRING && !aliased(dst, src) => copy_string(dst, src, len),
            CopyMethod::Wide | CopyMethod::String if len <= 128 => copy_wide_shortest(dst, src, len),
            CopyMethod::Wide | CopyMethod::String if len <= 256 => copy_wide_short(dst, src, len),
            CopyMethod::Wide | CopyMethod::String => copy_wide(dst, src, len),
        }
    }
}

/// The instructions by which this machine copies more than 64 bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum CopyMethod {
    /// SSE moves, on machines without AVX.
    Narrow = 1,
    /// 32-byte moves (AVX).
    Wide = 2,
    /// 32-byte moves, and `rep movsb` from [`STRING`] bytes on.
    String = 3,
}

/// Number of bytes from which string moves on Intel beat 32-byte moves.
const STRING: usize = 4096;

/// The method of this machine; zero until it has been looked up.
static METHOD: AtomicU8 = AtomicU8::new(0);

#[inline(always)]
fn copy_method() -> CopyMethod {
    match METHOD.load(Ordering::Relaxed) {
        1 => CopyMethod::Narrow,
        2 => CopyMethod::Wide,
        3 => CopyMethod::String,
        _ => find_copy_method(),
    }
}

#[cold]
fn find_copy_method() -> CopyMethod {
    let method = if !std::is_x86_feature_detected!("avx") {
        CopyMethod::Narrow
    } else if is_intel() && std::is_x86_feature_detected!("ermsb") {
        CopyMethod::String
    } else {
        CopyMethod::Wide
    };
    METHOD.store(method as u8, Ordering::Relaxed);
    method
}

fn is_intel() -> bool {
    let vendor = std::arch::x86_64::__cpuid(0);
    [vendor.ebx, vendor.edx, vendor.ecx] == [b"Genu", b"ineI", b"ntel"].map(|part| u32::from_le_bytes(*part))
}

/// Returns whether the destination lies less than 64 bytes after the source, modulo 4096. String moves are
/// very slow then.
fn aliased(dst: *mut u8, src: *const u8) -> bool {
    let apart = (dst as usize).wrapping_sub(src as usize) & 4095;
    apart != 0 && apart < 64
}

/// # Safety
/// Source and destination are mapped for `len` bytes, `len` > 64.
pub(super) unsafe fn copy_narrow(dst: *mut u8, src: *const u8, len: usize) -> bool {
    // SAFETY: at + 64 < len in the loop; the last move covers the last 64 bytes.
    unsafe {
        let mut at = 0;
        while at + 64 < len {
            if !move64(dst.add(at), src.add(at)) {
                return false;
            }
            at += 64;
        }
        move64(dst.add(len - 64), src.add(len - 64))
    }
}

/// # Safety
/// Source and destination are mapped for `len` bytes, `len` > 64.
pub(super) unsafe fn copy_string(dst: *mut u8, src: *const u8, len: usize) -> bool {
    // SAFETY: the string move covers all bytes but the last, which is stored afterwards together with the
    // 63 before it. The order within a string move is undefined, but a later store becomes visible after
    // it.
    unsafe {
        guarded_asm!("rep movsb",; { return false };
            in("rcx") len - 1, in("rdi") dst, in("rsi") src, lateout("rcx") _, lateout("rdi") _, lateout("rsi") _,
            options(nostack, preserves_flags));
        move64(dst.add(len - 64), src.add(len - 64))
    }
}

/// # Safety
/// Source and destination are mapped for `len` bytes, 64 <= `len` <= 128, and the machine has AVX.
pub(super) unsafe fn copy_wide_shortest(dst: *mut u8, src: *const u8, len: usize) -> bool {
    // SAFETY: the first and the last 64 bytes.
    unsafe {
        wide_asm!(
            "vmovups ymm0, [{s}]", "vmovups ymm1, [{s} + 32]", "vmovups ymm2, [{e} - 64]", "vmovups ymm3, [{e} - 32]",
            "vmovups [{d}], ymm0", "vmovups [{d} + 32], ymm1", "vmovups [{f} - 64], ymm2", "vmovups [{f} - 32], ymm3",
            ; s = in(reg) src, d = in(reg) dst, e = in(reg) src.add(len), f = in(reg) dst.add(len),
        );
    }
    true
}

/// # Safety
/// Source and destination are mapped for `len` bytes, 128 <= `len` <= 256, and the machine has AVX.
pub(super) unsafe fn copy_wide_short(dst: *mut u8, src: *const u8, len: usize) -> bool {
    // SAFETY: the first and the last 128 bytes.
    unsafe {
        wide_asm!(
            "vmovups ymm0, [{s}]", "vmovups ymm1, [{s} + 32]", "vmovups ymm2, [{s} + 64]", "vmovups ymm3, [{s} + 96]",
            "vmovups ymm4, [{e} - 128]", "vmovups ymm5, [{e} - 96]", "vmovups ymm6, [{e} - 64]", "vmovups ymm7, [{e} - 32]",
            "vmovups [{d}], ymm0", "vmovups [{d} + 32], ymm1", "vmovups [{d} + 64], ymm2", "vmovups [{d} + 96], ymm3",
            "vmovups [{f} - 128], ymm4", "vmovups [{f} - 96], ymm5", "vmovups [{f} - 64], ymm6", "vmovups [{f} - 32], ymm7",
            ; s = in(reg) src, d = in(reg) dst, e = in(reg) src.add(len), f = in(reg) dst.add(len),
        );
    }
    true
}

/// # Safety
/// Source and destination are mapped for `len` bytes, `len` >= 256, and the machine has AVX.
pub(super) unsafe fn copy_wide(dst: *mut u8, src: *const u8, len: usize) -> bool {
    // The first 32 bytes unaligned, then 128 bytes a turn into an aligned destination, then the last 128.
    let skip = 32 - (dst as usize & 31);
    let turns = (len - skip) / 128;
    // SAFETY: skip <= 32, skip + 128 * turns <= len, and turns >= 1.
    unsafe {
        wide_asm!(
            "vmovups ymm0, [rsi]", "vmovups [rdi], ymm0", "add rsi, {skip}", "add rdi, {skip}",
            "2:",
            "vmovups ymm0, [rsi]", "vmovups ymm1, [rsi + 32]", "vmovups ymm2, [rsi + 64]", "vmovups ymm3, [rsi + 96]",
            "vmovaps [rdi], ymm0", "vmovaps [rdi + 32], ymm1", "vmovaps [rdi + 64], ymm2", "vmovaps [rdi + 96], ymm3",
            "add rsi, 128", "add rdi, 128", "dec rcx", "jnz 2b",
            "vmovups ymm0, [{e} - 128]", "vmovups ymm1, [{e} - 96]", "vmovups ymm2, [{e} - 64]", "vmovups ymm3, [{e} - 32]",
            "vmovups [{f} - 128], ymm0", "vmovups [{f} - 96], ymm1", "vmovups [{f} - 64], ymm2", "vmovups [{f} - 32], ymm3",
            ; in("rsi") src, in("rdi") dst, in("rcx") turns, lateout("rsi") _, lateout("rdi") _, lateout("rcx") _,
            skip = in(reg) skip, e = in(reg) src.add(len), f = in(reg) dst.add(len),
        );
    }
    true
}
