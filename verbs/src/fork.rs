//! Is this still the process that opened the device? One load of a page that the kernel wipes in a child of fork.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Stands in the page as long as the process is the one that made it.
const HERE: u32 = 0x5e1f_5e1f;

/// A word that is zero in every child.
#[derive(Copy, Clone, Debug)]
pub(crate) struct ForkMark(&'static AtomicU32);

impl ForkMark {
    /// The mark of this process. If the kernel cannot wipe on fork (before 4.14), no fork is ever noticed by it.
    pub fn get() -> ForkMark {
        static MARK: OnceLock<&'static AtomicU32> = OnceLock::new();
        let word = *MARK.get_or_init(page);
        // A child that opens a device of its own starts over: it marks its own copy of the page.
        word.store(HERE, Ordering::Relaxed);
        ForkMark(word)
    }

    /// Was the process forked since?
    #[inline(always)]
    pub fn is_child(self) -> bool {
        self.0.load(Ordering::Relaxed) != HERE
    }
}

/// A page of its own, never given back.
fn page() -> &'static AtomicU32 {
    static WITHOUT: AtomicU32 = AtomicU32::new(0);
    const PAGE: usize = 4096;
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing that exists.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, protection, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return &WITHOUT;
    }
    // SAFETY: the page was just mapped, is ours alone, and anonymous and private, as the advice demands. Refusal is harmless.
    unsafe { libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) };
    // SAFETY: mapped for ever, aligned, zeroed, and only ever accessed as this atomic.
    unsafe { AtomicU32::from_ptr(page.cast()) }
}
