//! An asymmetric memory fence: free for the thread that runs often, expensive for the one that runs rarely.
//!
//! Two threads that each store one word and then load the other's word need a fence on both sides; without
//! it both may miss the other's store. membarrier(2) lets the rare side execute a fence on every core that
//! runs this process, so that the frequent side only needs to keep the compiler from reordering.

use crate::sync::{Ordering, fence};

/// Returns whether membarrier(2) is usable in this process. If not, the frequent side must execute a fence
/// itself.
pub(crate) fn asymmetric() -> bool {
    imp::registered()
}

/// The fence of the frequent side. It orders nothing unless [`asymmetric`] returns true.
#[inline(always)]
pub(crate) fn light() {
    #[cfg(not(any(loom, miri)))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    // loom and Miri do not know membarrier: their model is a full fence on both sides.
    #[cfg(any(loom, miri))]
    fence(Ordering::SeqCst);
}

/// The fence of the rare side. After it, one of two things holds: this thread sees the stores that another
/// thread made before its [`light`], or that thread's loads after its `light` see the stores that this
/// thread made before `heavy`.
pub(crate) fn heavy() {
    fence(Ordering::SeqCst);
    imp::everywhere();
    fence(Ordering::SeqCst);
}

#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod imp {
    use std::sync::OnceLock;

    /// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` of linux/membarrier.h.
    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

    fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: membarrier takes three integers and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }

    pub(crate) fn registered() -> bool {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        *REGISTERED.get_or_init(|| membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED))
    }

    pub(crate) fn everywhere() {
        if registered() && !membarrier(PRIVATE_EXPEDITED) {
            // A child of fork may have lost the registration. Without the barrier the lock is unsound.
            if !(membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED)) {
                std::process::abort();
            }
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri), not(loom))))]
mod imp {
    pub(super) fn registered() -> bool {
        // Under loom and Miri both sides fence, so that they explore the same protocol. Other systems have
        // no such call.
        cfg!(any(loom, miri))
    }

    pub(super) fn everywhere() {}
}
