use super::*;
use crate::table::tests::Bench;
use crate::{Access, AccessError, Key, Mem, Span, Width};
use std::process::{Command, ExitStatus};

/// Bytes of a page.
const PAGE: usize = 4096;

/// Two pages; tests make the second one inaccessible.
struct Pages {
    start: *mut u8,
}

impl Pages {
    fn new() -> Pages {
        install().unwrap();
        // SAFETY: a new mapping.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                2 * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        Pages { start: start.cast() }
    }

    /// Gives the second page these rights; `PROT_NONE` stands for an unmapped page.
    fn protect(&self, rights: i32) {
        // SAFETY: our own mapping.
        let done = unsafe { libc::mprotect(self.start.add(PAGE).cast(), PAGE, rights) };
        assert_eq!(done, 0);
    }

    /// The bytes that begin `before` bytes before the second page.
    fn span(&self, before: usize, len: usize) -> Span<'_> {
        // SAFETY: faults are handled.
        unsafe { Span::new(self.start.add(PAGE - before), len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nobody uses any more.
        unsafe { libc::munmap(self.start.cast(), 2 * PAGE) };
    }
}

/// Lengths that use every method of copying.
const LENGTHS: [usize; 14] = [1, 2, 3, 5, 8, 12, 16, 24, 33, 64, 100, 200, 1000, 4096];

/// Regression: a page that was unmapped under a live region ended the program.
#[test]
fn a_copy_of_any_length_into_a_page_that_is_gone_says_so() {
    let pages = Pages::new();
    pages.protect(libc::PROT_NONE);
    for len in LENGTHS {
        for before in [0, 1, 8].into_iter().filter(|before| *before < len) {
            let span = pages.span(before, len);
            let handled = count();
            assert_eq!(span.write(&vec![7; len]), 0, "{len} bytes, {before} of them on the page");
            assert_eq!(span.read(&mut vec![0; len]), 0, "{len} bytes, {before} of them on the page");
            assert_eq!(span.copy_from(&span), 0);
            assert!(count() >= handled + 3);
        }
        assert_eq!(pages.span(len, len).write(&vec![9; len]), len, "the page before is present");
    }
    pages.protect(libc::PROT_READ | libc::PROT_WRITE);
    assert_eq!(
        pages.span(4096, 4096 + 100).write(&[1; 4096 + 100]),
        4096 + 100,
        "the page may be mapped again"
    );
}

#[test]
fn a_page_that_may_only_be_read_is_read_and_not_written() {
    let pages = Pages::new();
    pages.protect(libc::PROT_READ);
    for len in LENGTHS {
        assert_eq!(pages.span(0, len).read(&mut vec![0; len]), len);
        assert_eq!(pages.span(0, len).write(&vec![0; len]), 0);
    }
}

#[test]
fn every_atomic_and_every_whole_meets_its_fault() {
    let pages = Pages::new();
    pages.protect(libc::PROT_NONE);
    let gone = Err(AccessError::PageFault);
    for len in [8, 16, 32] {
        let span = pages.span(0, len);
        let width = Width::from_bytes(len).unwrap();
        assert_eq!(span.update(width, Some), Err(AccessError::PageFault));
        assert_eq!(span.read_whole(&mut [0; 32], len), gone);
        assert_eq!(span.write_whole(&[0; 32], len), gone);
        assert!(!span.write_words(&[1, 2, 3, 4][..len / 8]));
    }
    let word = pages.span(0, 16);
    assert_eq!(word.load64(), Err(AccessError::PageFault));
    assert_eq!(word.store64(1), gone);
    assert_eq!(word.compare_swap64(0, 1), Err(AccessError::PageFault));
    assert_eq!(word.fetch_add64(1), Err(AccessError::PageFault));
    assert_eq!(pages.span(0, 128).scatter(&crate::Lines([1; 128])), 0);

    pages.protect(libc::PROT_READ | libc::PROT_WRITE);
    assert_eq!((word.fetch_add64(5), word.load64()), (Ok(0), Ok(5)), "and nothing was stored");
    assert_eq!((word.compare_swap64(5, 8), word.load64()), (Ok(5), Ok(8)));
}

#[test]
fn a_file_that_was_truncated_is_a_bus_error_that_is_handled() {
    install().unwrap();
    // SAFETY: a new file and a mapping of it.
    let (file, start) = unsafe {
        let file = libc::memfd_create(c"truncated".as_ptr(), 0);
        assert_eq!(libc::ftruncate(file, PAGE as i64), 0);
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        (file, libc::mmap(std::ptr::null_mut(), PAGE, rights, libc::MAP_SHARED, file, 0))
    };
    // SAFETY: faults are handled.
    let span: Span<'_> = unsafe { Span::new(start.cast(), 64) };
    assert_eq!(span.write(&[1; 64]), 64);
    // SAFETY: our own file.
    assert_eq!(unsafe { libc::ftruncate(file, 0) }, 0);
    assert_eq!((span.write(&[1; 64]), span.read(&mut [0; 64])), (0, 0));
    // SAFETY: our own mapping and file.
    unsafe { (libc::munmap(start, PAGE), libc::close(file)) };
}

#[test]
fn a_fault_ends_an_access_and_not_the_pass() {
    install().unwrap();
    let bench = Bench::small();
    let pages = Pages::new();
    let at = pages.start as u64;
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    // SAFETY: faults are handled.
    let key = unsafe { bench.table.register_raw(bench.pd, pages.start, 2 * PAGE, at, rights) }.unwrap();
    pages.protect(libc::PROT_NONE);
    let write = |mem: Mem<'_>, key: Key, va| {
        mem.check(bench.pd, key, va, 64, Access::REMOTE_WRITE).map(|span| span.write(&[3; 64]))
    };
    {
        let mut pass = bench.engine.enter();
        let (_, mem) = pass.parts();
        assert_eq!(write(mem, key, at + PAGE as u64), Ok(0));
        assert_eq!(write(mem, key, at), Ok(64));
    }
    bench.table.deregister(key).unwrap();
}

/// Runs one case of `in_a_process_of_its_own` in a new process.
fn run(case: &str) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "page_fault::tests::in_a_process_of_its_own", "--nocapture"]);
    command.env("PAGE_FAULT_CASE", case).stderr(std::process::Stdio::null());
    command.stdout(std::process::Stdio::null()).status().unwrap()
}

#[test]
fn a_programs_own_fault_reaches_its_handler_or_ends_it() {
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(run("no handler").signal(), Some(libc::SIGSEGV));
    assert_eq!(run("sent").signal(), Some(libc::SIGSEGV));
    assert_eq!(run("ignored").code(), Some(0), "a signal that was sent may be ignored");
    for case in ["before", "after", "chained", "restored", "once"] {
        assert_eq!(run(case).code(), Some(42), "{case}");
    }
    assert_eq!(run("many").code(), Some(0));
}

extern "C" fn leave(_: i32) {
    // SAFETY: allowed in a signal handler.
    unsafe { libc::_exit(42) }
}

/// The handler that was set before [`pass_on`] was installed.
static OLDER: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

extern "C" fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut std::ffi::c_void) {
    let older = OLDER.load(std::sync::atomic::Ordering::Relaxed);
    // SAFETY: sigaction gave the address.
    let older: extern "C" fn(i32, *mut libc::siginfo_t, *mut std::ffi::c_void) =
        unsafe { std::mem::transmute(older) };
    older(signal, info, context);
}

/// Sets the handler of SIGSEGV and returns the one that was set before.
fn set(handler: usize, flags: i32) -> usize {
    // SAFETY: zero is a value of it; both are actions.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut old: libc::sigaction = std::mem::zeroed();
        (action.sa_sigaction, action.sa_flags) = (handler, flags);
        assert_eq!(libc::sigaction(libc::SIGSEGV, &action, &mut old), 0);
        old.sa_sigaction
    }
}

/// Makes accesses of this crate fault; the process must survive them.
fn survive() {
    let pages = Pages::new();
    pages.protect(libc::PROT_NONE);
    assert_eq!(pages.span(0, 64).write(&[1; 64]), 0);
}

/// Causes a fault outside the NIC's accesses.
fn fault() {
    // SAFETY: the write is not sound; it is meant to fault.
    unsafe { std::ptr::without_provenance_mut::<u8>(16).write_volatile(1) };
}

/// The process that `a_programs_own_fault_reaches_its_handler_or_ends_it` starts with the name of a case.
#[test]
#[ignore = "the entry point of a process that another test starts"]
fn in_a_process_of_its_own() {
    let case = std::env::var("PAGE_FAULT_CASE").expect("set by the test that starts this process");
    let leave = leave as *const () as usize;
    match case.as_str() {
        "no handler" => {
            // The test harness has installed a handler of its own.
            set(libc::SIG_DFL, 0);
            survive();
            fault();
        }
        "sent" => {
            set(libc::SIG_DFL, 0);
            survive();
            // SAFETY: a signal to ourselves.
            unsafe { libc::raise(libc::SIGSEGV) };
        }
        "ignored" => {
            set(libc::SIG_IGN, 0);
            survive();
            // SAFETY: a signal to ourselves.
            unsafe { libc::raise(libc::SIGSEGV) };
        }
        "before" => {
            set(leave, 0);
            survive();
            fault();
        }
        "after" => {
            survive();
            set(leave, 0);
            reinstall();
            survive();
            fault();
        }
        "once" => {
            set(leave, libc::SA_RESETHAND);
            survive();
            fault();
        }
        other => handlers_beside_ours(other, leave),
    }
}

/// Cases of programs that keep our handler and use it again, or install many.
fn handlers_beside_ours(case: &str, leave: usize) {
    match case {
        // The program's handler calls ours, which must not call it back.
        "chained" => {
            set(leave, 0);
            survive();
            let older = set(pass_on as *const () as usize, libc::SA_SIGINFO);
            OLDER.store(older, std::sync::atomic::Ordering::Relaxed);
            reinstall();
            survive();
            fault();
        }
        // The program sets a handler for a while and puts ours back.
        "restored" => {
            set(leave, 0);
            install().unwrap();
            let older = set(libc::SIG_IGN, 0);
            reinstall();
            set(older, libc::SA_SIGINFO);
            reinstall();
            survive();
            fault();
        }
        // Two handlers installed in turn use up two entries; more handlers than entries do no harm.
        "many" => {
            for _ in 0..100 {
                set(leave, 0);
                reinstall();
                set(libc::SIG_IGN, 0);
                reinstall();
                survive();
            }
            for address in 0x1000..0x1040 {
                set(address, 0);
                reinstall();
            }
            assert_eq!(install(), Err(Error::Full));
        }
        other => panic!("{other}"),
    }
}
