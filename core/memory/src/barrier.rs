//! The asymmetric fence: free for the side that runs a thousand times, dear for the side that runs once.
//!
//! Two threads that each store one word and then load the other's need a fence on both sides. Without it both
//! may miss the other's store. membarrier(2) lets the rare side run a fence on every core that executes this
//! process. So the frequent side needs only to keep the compiler from reordering.

use crate::sync::{Ordering, fence};

/// Is the asymmetric pair usable in this process? If not, the frequent side must fence by itself.
pub(crate) fn asymmetric() -> bool {
    imp::registered()
}

/// The frequent side; orders nothing unless [`asymmetric`].
#[inline(always)]
pub(crate) fn light() {
    #[cfg(not(any(loom, miri)))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    // loom and Miri know no membarrier: their model is a full fence on both sides.
    #[cfg(any(loom, miri))]
    fence(Ordering::SeqCst);
}

/// The rare side. After it, one of two things holds: this thread sees what another stored before its
/// [`light`], or that thread's loads after its `light` see what this one stored before `heavy`.
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

    pub fn registered() -> bool {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        *REGISTERED.get_or_init(|| membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED))
    }

    pub fn everywhere() {
        if registered() && !membarrier(PRIVATE_EXPEDITED) {
            // A child of fork may have lost the registration. Without the barrier nothing here is sound.
            if !(membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED)) {
                std::process::abort();
            }
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri), not(loom))))]
mod imp {
    pub fn registered() -> bool {
        // loom and Miri: both sides fence, so the protocol is worth exploring. Elsewhere there is no such
        // call.
        cfg!(any(loom, miri))
    }

    pub fn everywhere() {}
}
