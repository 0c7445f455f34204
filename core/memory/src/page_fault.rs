//! Page faults of the NIC's own accesses to registered memory.
//!
//! A hardware NIC pins the pages of a region. This NIC does not, so a page may vanish under a live region
//! (munmap, a truncated file), or its mapping may lose a right (mprotect). The CPU then faults inside one
//! of the `asm!` blocks that touch registered bytes. Each block writes an entry into a linker section, like
//! the kernel's exception table: where its instructions begin and end, and where execution continues after
//! a fault. The signal handler ([`install`]) looks up the faulting instruction and resumes the thread
//! there. The function that contains the block then returns false, which becomes a NAK or a local
//! protection error. Without a fault this costs no instruction.
//!
//! A fault of any other instruction is passed to the handler that was installed before.
//!
//! **Limits.** Only Linux on x86-64 and ARM64 has entries. A thread that blocks SIGSEGV or SIGBUS is
//! killed by a fault in spite of the handler, because the kernel ends a thread that blocks the signal of its
//! own fault.

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux", not(miri)))]
mod exception_table;
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux", not(miri)))]
mod handler;
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux", not(miri)))]
mod moving;

use crate::Error;

/// `asm!` whose page faults are handled. Arguments: the instructions with a comma behind each, a semicolon,
/// the block that runs after a fault, a semicolon, the operands. A fault may cause instructions to be
/// repeated or skipped, and the assembly must have no outputs.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
macro_rules! guarded_asm {
    ($($code:literal,)+; $fault:block; $($operands:tt)*) => {
        std::arch::asm!(
            "20:", $($code,)+ "21:", crate::page_fault::entry!("{page_fault}"),
            page_fault = label $fault,
            $($operands)*
        )
    };
}

/// The assembly text of an entry for the instructions between the labels 20 and 21: three distances from
/// the entry's own words. The flag `?` puts the entry into the section group of its function, so that both
/// are linked or discarded together. The flag `R` retains it: lld drops a section that is referenced only
/// by its start and stop symbols.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux", not(miri)))]
macro_rules! entry {
    ($landing:literal) => {
        concat!(
            ".pushsection remora_page_faults, \"aR?\", @progbits\n.balign 4\n.long 20b - .\n.long 21b - .\n.long ",
            $landing,
            " - .\n.popsection"
        )
    };
}
/// Other systems have no table. The label is named because each operand must be used.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(target_os = "linux"), not(miri)))]
macro_rules! entry {
    ($landing:literal) => {
        concat!("/* ", $landing, " */")
    };
}

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
pub(crate) use {entry, guarded_asm};

/// Handles page faults of the NIC's accesses from now on, in the whole process: installs handlers of
/// SIGSEGV and SIGBUS in front of the present ones. Calling it a second time has the effect of
/// [`reinstall`]. The handlers cannot be removed, because the program may keep a handler that calls this
/// one.
///
/// # Errors
/// `Os`: ENOSYS if the platform has no exception table, else the errno of sigaction(2). `Full` if too many
/// handlers were installed since.
pub fn install() -> Result<(), Error> {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux", not(miri)))]
    return handler::install();
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux", not(miri))))]
    Err(Error::Os(ENOSYS))
}

/// Installs the handlers in front of one that the program has installed since. Does nothing before
/// [`install`]. Costs two system calls and takes no lock.
///
/// Up to 15 such handlers of each signal are supported. The next one stays in front, and faults then go to
/// it.
pub fn reinstall() {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux", not(miri)))]
    handler::reinstall();
}

/// Returns whether [`install`] was called.
pub fn is_installed() -> bool {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux", not(miri)))]
    return handler::is_installed();
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux", not(miri))))]
    false
}

/// Returns the number of page faults handled in this process so far.
pub fn count() -> u64 {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux", not(miri)))]
    return handler::count();
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux", not(miri))))]
    0
}

/// Calls `replace`, which replaces the mapping of the `len` bytes from `first` on. While `replace` has made
/// the pages read-only, threads that write to them wait in the handler ([`install`]). A system call that
/// writes to them fails with EFAULT. `replace` must not write to the pages; they may hold the heap and the
/// stacks of other threads, but not the caller's stack.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux", not(miri)))]
pub fn while_moving<R>(first: usize, len: usize, replace: impl FnOnce() -> R) -> R {
    moving::while_moving(first, len, replace)
}

#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux", not(miri))))]
const ENOSYS: i32 = 38;

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux", not(miri)))]
mod tests;
