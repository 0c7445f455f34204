//! Is this still the process that made an object? A child of fork inherits the objects of its parent. It has
//! neither the threads behind them nor a right to the sockets and rings that it now shares with its parent.
//!
//! Each process has a mark of its own, in a page that the kernel wipes in every child (`MADV_WIPEONFORK`). An
//! object keeps the mark of the process that made it. A child that makes objects of its own gets a new mark,
//! so the inherited object stays foreign to it and to its children.

use std::sync::atomic::{AtomicU64, Ordering};

/// The mark of the process that made an object. To compare it takes two loads.
#[derive(Copy, Clone, Debug)]
pub struct ForkMark {
    /// The mark of the calling process; zero in a child that has made no object yet.
    now: &'static AtomicU64,
    made: u64,
}

impl ForkMark {
    /// The mark of this process.
    pub fn get() -> ForkMark {
        ForkMark::of(imp::now())
    }

    fn of(now: &'static AtomicU64) -> ForkMark {
        /// The mark that was given last. A child counts on from its parent's, so no mark that it inherits is
        /// its own.
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

    /// Is this another process than the one that made the object: a child of it, or a child's child?
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

    pub fn now() -> &'static AtomicU64 {
        NOW.get_or_init(|| wiped_page().unwrap_or_else(wiped_by_handler))
    }

    /// A page of its own, never given back. None: the kernel cannot wipe it (before 4.14).
    pub fn wiped_page() -> Option<&'static AtomicU64> {
        const PAGE: usize = 4096;
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing that exists.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, protection, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the page was just mapped, is ours alone, and anonymous and private, as the advice demands.
        if unsafe { libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) } != 0 {
            // SAFETY: mapped a moment ago, and nobody has its address.
            unsafe { libc::munmap(page, PAGE) };
            return None;
        }
        // SAFETY: mapped for ever, aligned, zeroed, and only ever accessed as this atomic.
        Some(unsafe { AtomicU64::from_ptr(page.cast()) })
    }

    /// A word that the C library clears in each child that it forks. A child by clone(2) past the library is
    /// not noticed.
    pub fn wiped_by_handler() -> &'static AtomicU64 {
        static WORD: AtomicU64 = AtomicU64::new(0);
        extern "C" fn wipe() {
            WORD.store(0, Ordering::Relaxed);
        }
        // SAFETY: the handler stores one word, which is allowed in a child of any process. Without memory no
        // fork is noticed.
        unsafe { libc::pthread_atfork(None, None, Some(wipe)) };
        &WORD
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod imp {
    use super::AtomicU64;

    /// There is no fork here.
    pub fn now() -> &'static AtomicU64 {
        static WORD: AtomicU64 = AtomicU64::new(0);
        &WORD
    }
}

#[cfg(all(test, target_os = "linux", not(miri), not(loom)))]
mod tests {
    use super::*;

    /// Does `body` hold in a child of this process?
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
        assert!(!ours.is_child(), "what children do is no matter of their parent's");
    }

    #[test]
    fn a_process_its_child_and_its_childs_child_have_marks_of_their_own() {
        every_generation_has_a_mark_of_its_own(imp::wiped_page().expect("Linux 4.14 or later"));
    }

    #[test]
    fn where_the_kernel_wipes_no_page_the_c_library_tells_of_a_fork() {
        every_generation_has_a_mark_of_its_own(imp::wiped_by_handler());
    }
}
