//! The handlers of SIGSEGV and SIGBUS.
//!
//! A program may install a handler after ours and remember ours as the one to call next. When ours is then
//! installed in front again, a single entry point would call the program's handler, which calls the entry
//! point, forever. Therefore there are several entry points, each with the handler that it was installed in
//! front of: the newest calls the program's handler, which calls the older entry point, which calls the
//! original handler.

use super::exception_table::landing_of;
use crate::Error;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Number of entry points for each signal.
const ENTRIES: usize = 16;

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// The handler that an entry point was installed in front of, and its flags.
struct ChainedHandler {
    handler: AtomicUsize,
    flags: AtomicUsize,
    taken: AtomicBool,
}

impl ChainedHandler {
    const fn none() -> ChainedHandler {
        ChainedHandler {
            handler: AtomicUsize::new(libc::SIG_DFL),
            flags: AtomicUsize::new(0),
            taken: AtomicBool::new(false),
        }
    }
}

static CHAINED: [[ChainedHandler; ENTRIES]; 2] = [const { [const { ChainedHandler::none() }; ENTRIES] }; 2];
static INSTALLED: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);
/// Set while a thread changes handlers. Another thread that finds it set leaves the change to that thread.
static CHANGING: AtomicBool = AtomicBool::new(false);

extern "C" fn entry<const NUMBER: usize>(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    faulted(NUMBER, signal, info, context);
}

const HANDLERS: [Handler; ENTRIES] = [
    entry::<0>,
    entry::<1>,
    entry::<2>,
    entry::<3>,
    entry::<4>,
    entry::<5>,
    entry::<6>,
    entry::<7>,
    entry::<8>,
    entry::<9>,
    entry::<10>,
    entry::<11>,
    entry::<12>,
    entry::<13>,
    entry::<14>,
    entry::<15>,
];

pub(super) fn install() -> Result<(), Error> {
    INSTALLED.store(true, Ordering::Release);
    step_in_front()
}

pub(super) fn reinstall() {
    if is_installed() {
        // If all entry points are used up, the program's own handler stays in front.
        let _ = step_in_front();
    }
}

pub(super) fn is_installed() -> bool {
    INSTALLED.load(Ordering::Acquire)
}

pub(super) fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

fn step_in_front() -> Result<(), Error> {
    if CHANGING.swap(true, Ordering::Acquire) {
        return Ok(());
    }
    let done = (0..SIGNALS.len()).try_for_each(step_in_front_of);
    CHANGING.store(false, Ordering::Release);
    done
}

/// Installs the next entry point in front of the handler of one signal, unless that handler is ours.
fn step_in_front_of(which: usize) -> Result<(), Error> {
    let now = exchange(SIGNALS[which], None)?;
    if HANDLERS.iter().any(|handler| *handler as usize == now.sa_sigaction) {
        return Ok(());
    }
    let entries = &CHAINED[which];
    // A program that repeatedly installs the same handler uses up only one entry point.
    let known = entries.iter().position(|next| {
        next.taken.load(Ordering::Relaxed) && next.handler.load(Ordering::Relaxed) == now.sa_sigaction
    });
    let free = || entries.iter().position(|next| !next.taken.load(Ordering::Relaxed));
    let number = known.or_else(free).ok_or(Error::Full)?;
    entries[number].flags.store(now.sa_flags as usize, Ordering::Relaxed);
    entries[number].handler.store(now.sa_sigaction, Ordering::Release);
    entries[number].taken.store(true, Ordering::Relaxed);
    let kept = now.sa_flags & (libc::SA_RESTART | libc::SA_NODEFER);
    let ours = libc::sigaction {
        sa_sigaction: HANDLERS[number] as usize,
        // The kernel blocks the signals that the program's handler wants blocked.
        sa_mask: now.sa_mask,
        sa_flags: libc::SA_SIGINFO | libc::SA_ONSTACK | kept,
        sa_restorer: None,
    };
    exchange(SIGNALS[which], Some(&ours)).map(drop)
}

/// Returns the action of a signal, and sets `new` if given.
fn exchange(signal: c_int, new: Option<&libc::sigaction>) -> Result<libc::sigaction, Error> {
    // SAFETY: all zero is a valid sigaction.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: both are valid actions or null; a handler of ours may run at any moment.
    match unsafe { libc::sigaction(signal, new, &mut old) } {
        0 => Ok(old),
        _ => Err(Error::Os(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL))),
    }
}

fn faulted(number: usize, signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: both pointers come from the kernel, or from a handler that passes on what it got.
    let (by_kernel, at) =
        unsafe { (!info.is_null() && (*info).si_code > 0, program_counter(context.cast())) };
    // SAFETY: the kernel has filled the information of a fault.
    if by_kernel && signal == libc::SIGSEGV && super::moving::awaits(unsafe { (*info).si_addr() } as usize) {
        return;
    }
    // SAFETY: as above; the thread resumes where the register points when the handler returns.
    if by_kernel && let Some(landing) = landing_of(unsafe { *at } as usize) {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: a landing is an address at which the block's function continues after a fault.
        unsafe { *at = landing as _ };
        return;
    }
    pass_on(number, signal, by_kernel, info, context);
}

/// Returns the saved register that points to the instruction that faulted.
///
/// # Safety
/// The kernel has filled the context.
#[cfg(target_arch = "x86_64")]
unsafe fn program_counter(context: *mut libc::ucontext_t) -> *mut i64 {
    // SAFETY: the caller's promise.
    unsafe { &raw mut (*context).uc_mcontext.gregs[libc::REG_RIP as usize] }
}

/// Returns the saved register that points to the instruction that faulted.
///
/// # Safety
/// The kernel has filled the context.
#[cfg(target_arch = "aarch64")]
unsafe fn program_counter(context: *mut libc::ucontext_t) -> *mut u64 {
    // SAFETY: the caller's promise.
    unsafe { &raw mut (*context).uc_mcontext.pc }
}

/// Passes the signal to the handler that this entry point was installed in front of.
#[cold]
fn pass_on(number: usize, signal: c_int, by_kernel: bool, info: *mut libc::siginfo_t, context: *mut c_void) {
    let next = &CHAINED[usize::from(signal == libc::SIGBUS)][number];
    let once = next.flags.load(Ordering::Relaxed) & libc::SA_RESETHAND as usize != 0;
    let handler = next.handler.load(Ordering::Acquire);
    if once {
        next.handler.store(libc::SIG_DFL, Ordering::Relaxed);
    }
    match handler {
        // The kernel does not ignore a fault even if the action is SIG_IGN.
        libc::SIG_IGN if !by_kernel => {}
        libc::SIG_DFL | libc::SIG_IGN => die(signal, by_kernel),
        _ => {
            // SAFETY: the program gave this address as a handler. A handler without SA_SIGINFO takes only
            // the first argument, which the calling conventions allow.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
            handler(signal, info, context);
        }
    }
}

/// Restores the default action. A fault recurs when the handler returns; a signal that was sent is sent
/// once more.
fn die(signal: c_int, by_kernel: bool) {
    // SAFETY: all zero is a valid sigaction: the default action.
    let default: libc::sigaction = unsafe { std::mem::zeroed() };
    let _ = exchange(signal, Some(&default));
    if !by_kernel {
        // SAFETY: sends a signal to this thread.
        unsafe { libc::raise(signal) };
    }
}
