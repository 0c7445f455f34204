//! Prefetch hints: they change when a cache line arrives, never what is read.

/// Prefetches the cache line at `address` for writing.
#[inline(always)]
pub(crate) fn for_write(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint: it neither faults nor changes memory. It is asm because the compiler emits a read
    // prefetch for the intrinsic, unless it targets a CPU with PRFCHW. CPUs without PRFCHW take the
    // instruction as a no-op.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a hint: it neither faults nor changes memory.
    unsafe {
        core::arch::asm!("prfm pstl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// Prefetches the cache line at `address` for reading.
#[inline(always)]
pub(crate) fn for_read(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint: it neither faults nor changes memory.
    unsafe {
        core::arch::asm!("prefetcht0 [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a hint: it neither faults nor changes memory.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}
