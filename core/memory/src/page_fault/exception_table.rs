//! The table of instructions whose faults are handled, as the linker puts it together.

/// An entry: distances from each word's own address. An `asm!` block writes it.
#[repr(C)]
struct ExceptionEntry {
    begin: i32,
    end: i32,
    landing: i32,
}

// The linker gives a section whose name is a C identifier a symbol at each end. An entry of no instruction
// makes the section where no other code needs it. Another library's table is not taken for this one.
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

/// Where a thread goes on whose instruction at `address` has faulted; None for an instruction that is none of
/// ours. A signal handler calls it: it takes no lock and allocates nothing.
pub(super) fn landing_of(address: usize) -> Option<usize> {
    let (start, stop) = (&raw const START, &raw const STOP);
    let count = (stop as usize - start as usize) / size_of::<ExceptionEntry>();
    // SAFETY: the linker put `count` entries between its two symbols, and nothing writes them.
    let entries = unsafe { std::slice::from_raw_parts(start.cast::<ExceptionEntry>(), count) };
    let absolute = |word: &i32| (std::ptr::from_ref(word) as usize).wrapping_add_signed(*word as isize);
    entries
        .iter()
        .find(|entry| (absolute(&entry.begin)..absolute(&entry.end)).contains(&address))
        .map(|entry| absolute(&entry.landing))
}
