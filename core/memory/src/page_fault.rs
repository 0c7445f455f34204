//! Page faults of the NIC's own accesses to registered memory.
//!
//! A hardware NIC pins the pages of a region. This one does not, so a page may go away under a live region
//! (munmap, a truncated file), or its mapping may lose a right (mprotect). The CPU then faults inside one of
//! the `asm!` blocks that touch registered bytes. Each block writes an entry into a section of its own, as
//! the kernel's exception table does: where its instructions begin and end, and where it goes on after a
//! fault. The signal handler ([`install`]) looks the instruction up and lets the thread go on there. The
//! block's function then says false, which becomes a NAK or a local protection error. Without a fault this
//! costs no instruction.
//!
//! A fault of any other instruction belongs to the handler that stood there before.
//!
//! **Limits.** Only x86-64 Linux has entries. A thread that blocks SIGSEGV or SIGBUS dies by a fault,
//! whatever the handler: the kernel demands it.

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
mod exception_table;
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
mod handler;

use crate::Error;

/// `asm!` whose page faults are handled: instructions with a comma behind each, a semicolon, the block in
/// which it goes on after a fault, a semicolon, operands. All its instructions may be repeated or left out by
/// a fault, and it has no outputs.
#[cfg(all(target_arch = "x86_64", not(miri)))]
macro_rules! guarded_asm {
    ($($code:literal,)+; $fault:block; $($operands:tt)*) => {
        std::arch::asm!(
            "20:", $($code,)+ "21:", crate::page_fault::entry!("{page_fault}"),
            page_fault = label $fault,
            $($operands)*
        )
    };
}

/// The text of an entry for the instructions between the labels 20 and 21: three distances from the entry's
/// own words. `?` puts it into the group of its function, so both are linked or left out together. `R` keeps
/// it: lld drops a section that only the symbols at its ends name.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
macro_rules! entry {
    ($landing:literal) => {
        concat!(
            ".pushsection remora_page_faults, \"aR?\", @progbits\n.balign 4\n.long 20b - .\n.long 21b - .\n.long ",
            $landing,
            " - .\n.popsection"
        )
    };
}
/// Other systems link no table. The label is named because each operand must be.
#[cfg(all(target_arch = "x86_64", not(target_os = "linux"), not(miri)))]
macro_rules! entry {
    ($landing:literal) => {
        concat!("# ", $landing)
    };
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use {entry, guarded_asm};

/// Handles page faults of the NIC's accesses from now on, in the whole process: handlers of SIGSEGV and
/// SIGBUS stand before those that are there. Calling it again is [`reinstall`]. There is no way back, since
/// the program may keep a handler that calls this one.
///
/// # Errors
/// `Os`: ENOSYS where the machine has no such table, else what sigaction(2) says.
pub fn install() -> Result<(), Error> {
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
    return handler::install();
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
    Err(Error::Os(ENOSYS))
}

/// Steps in front of a handler that the program has installed since. Does nothing before [`install`]. It
/// costs two system calls, and takes no lock.
///
/// Up to 15 such handlers of each signal are followed; the next one keeps its place, and faults then end as
/// it decides.
pub fn reinstall() {
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
    handler::reinstall();
}

/// Is [`install`] done?
pub fn is_installed() -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
    return handler::is_installed();
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
    false
}

/// Page faults handled in this process so far.
pub fn count() -> u64 {
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
    return handler::count();
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
    0
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
const ENOSYS: i32 = 38;

#[cfg(all(test, target_arch = "x86_64", target_os = "linux", not(miri)))]
mod tests;
