//! Detection of fork: tells an object whether it is used in the process that created it. A child of fork
//! inherits the objects of its parent, but neither the threads behind them nor the right to use the sockets
//! and rings that it now shares with its parent.
//!
//! Each process has its own mark, in a page that the kernel wipes in every child (`MADV_WIPEONFORK`). An
//! object stores the mark of the process that created it. A child that creates objects gets a new mark, so
//! an inherited object stays foreign to the child and to the child's children.

use std::sync::atomic::{AtomicU64, Ordering};

/// The mark of the process that created an object. A comparison takes two loads.
#[derive(Copy, Clone, Debug)]
pub struct ForkMark {
    /// The mark of the calling process; zero in a child that has created no object yet.
    now: &'static AtomicU64,
    made: u64,
}

impl ForkMark {
    /// Returns the mark of the calling process.
    pub fn get() -> ForkMark {
        ForkMark::of(imp::now())
    }

    fn of(now: &'static AtomicU64) -> ForkMark {
        /// The mark that was given last. A child continues from its parent's number, so every new mark
        /// differs from all inherited ones.
        static LAST: AtomicU64 = AtomicU64::new(0);
        let made = match now.load(Ordering::Relaxed) {
            0 => {
                let next = LAST.fetch_add(1, Ordering::Relaxed) + 1;
                // Another thread may have been quicker: a process has one mark.
                let given = now.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed);
                given.map_or_else(|there| there, |_| next)
            }
            made => made,
        };
        ForkMark { now, made }
    }

    /// Returns whether the calling process is not the one that created the object, but a descendant of it.
    #[inline(always)]
    pub fn is_child(self) -> bool {
        self.now.load(Ordering::Relaxed) != self.made
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod imp {
    use super::{AtomicU64, Ordering};
    use std::sync::OnceLock;

    static NOW: OnceLock<&AtomicU64> = OnceLock::new();

    pub(crate) fn now() -> &'static AtomicU64 {
        NOW.get_or_init(|| wiped_page().unwrap_or_else(wiped_by_handler))
    }

    /// Maps a page for the mark, which is never unmapped. Returns `None` if the kernel cannot wipe it in
    /// children (before Linux 4.14, and under emulation).
    pub(crate) fn wiped_page() -> Option<&'static AtomicU64> {
        const PAGE: usize = 4096;
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing that exists.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, protection, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the page was just mapped, is ours alone, and anonymous and private, as the advice demands.
        if unsafe { libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) } != 0 || ignores_advice() {
            // SAFETY: mapped a moment ago, and nobody has its address.
            unsafe { libc::munmap(page, PAGE) };
            return None;
        }
        // SAFETY: mapped forever, aligned, zeroed, and only ever accessed as this atomic.
        Some(unsafe { AtomicU64::from_ptr(page.cast()) })
    }

    /// Returns whether the system accepts advice that it does not know, as QEMU's emulation of user programs
    /// does: it may then ignore the advice that it accepts.
    pub(crate) fn ignores_advice() -> bool {
        const UNKNOWN: libc::c_int = 0x7fff;
        // SAFETY: Linux refuses the advice, and others ignore it; no byte is concerned.
        unsafe { libc::madvise(std::ptr::null_mut(), 0, UNKNOWN) == 0 }
    }

    /// Returns a word that the C library clears in each child that it forks. A child made by clone(2)
    /// without the library is not detected.
    pub(crate) fn wiped_by_handler() -> &'static AtomicU64 {
        static WORD: AtomicU64 = AtomicU64::new(0);
        extern "C" fn wipe() {
            WORD.store(0, Ordering::Relaxed);
        }
        // SAFETY: the handler stores one word, which is allowed in the child of any process. If
        // registration fails for lack of memory, forks are not detected.
        unsafe { libc::pthread_atfork(None, None, Some(wipe)) };
        &WORD
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod imp {
    use super::AtomicU64;

    /// Returns a constant mark, because this system has no fork.
    pub fn now() -> &'static AtomicU64 {
        static WORD: AtomicU64 = AtomicU64::new(0);
        &WORD
    }
}

#[cfg(all(test, target_os = "linux", not(miri), not(loom)))]
mod tests {
    use super::*;

    /// Returns whether `body` returns true in a child of this process.
    fn in_child(body: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child touches its own copies of memory, allocates nothing, and leaves by _exit.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let good = body();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(if good { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: `status` is an int of ours.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        status == 0
    }

    fn every_generation_has_a_mark_of_its_own(now: &'static AtomicU64) {
        let ours = ForkMark::of(now);
        assert!(!ours.is_child() && ForkMark::of(now).made == ours.made);
        assert!(in_child(|| {
            let before = ours.is_child();
            let theirs = ForkMark::of(now);
            let grandchild = in_child(|| {
                let inherited = ours.is_child() && theirs.is_child();
                let own = ForkMark::of(now);
                inherited && !own.is_child() && ours.is_child() && theirs.is_child()
            });
            before && ours.is_child() && !theirs.is_child() && grandchild
        }));
        assert!(!ours.is_child(), "a child's marks must not change the parent's");
    }

    #[test]
    fn a_process_its_child_and_its_childs_child_have_marks_of_their_own() {
        every_generation_has_a_mark_of_its_own(imp::now());
    }

    /// Regression: where advice was accepted and ignored, a child took itself for its parent.
    #[test]
    fn a_page_is_the_mark_unless_the_kernel_may_ignore_the_advice_to_wipe_it() {
        assert_eq!(imp::wiped_page().is_none(), imp::ignores_advice());
    }

    #[test]
    fn where_the_kernel_wipes_no_page_the_c_library_tells_of_a_fork() {
        every_generation_has_a_mark_of_its_own(imp::wiped_by_handler());
    }
}
