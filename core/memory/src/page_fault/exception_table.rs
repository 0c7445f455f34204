//! The table of instructions whose faults are handled, as assembled by the linker.

/// An entry of the table, written by an `asm!` block. Each word is a distance from its own address.
#[repr(C)]
struct ExceptionEntry {
    begin: i32,
    end: i32,
    landing: i32,
}

// The linker defines a symbol at each end of a section whose name is a C identifier. An empty entry creates
// the section even if no other code needs it. The symbols are hidden, so that another library's table is
// not mistaken for this one.
std::arch::global_asm!(
    ".hidden __start_remora_page_faults",
    ".hidden __stop_remora_page_faults",
    ".pushsection remora_page_faults, \"aR?\", @progbits",
    ".balign 4",
    ".long 0, 0, 0",
    ".popsection",
);

unsafe extern "C" {
    #[link_name = "__start_remora_page_faults"]
    static START: [ExceptionEntry; 0];
    #[link_name = "__stop_remora_page_faults"]
    static STOP: [ExceptionEntry; 0];
}

/// Returns the address at which a thread resumes whose instruction at `address` has faulted; `None` if the
/// table has no such instruction. Called from a signal handler: takes no lock and allocates nothing.
pub(super) fn landing_of(address: usize) -> Option<usize> {
    let start = &raw const START;
    let stop = &raw const STOP;
    let count = (stop as usize - start as usize) / size_of::<ExceptionEntry>();
    // SAFETY: the linker put `count` entries between its two symbols, and they are never written.
    let entries = unsafe { std::slice::from_raw_parts(start.cast::<ExceptionEntry>(), count) };
    let absolute = |word: &i32| (std::ptr::from_ref(word) as usize).wrapping_add_signed(*word as isize);
    entries
        .iter()
        .find(|entry| (absolute(&entry.begin)..absolute(&entry.end)).contains(&address))
        .map(|entry| absolute(&entry.landing))
}
