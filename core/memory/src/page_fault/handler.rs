//! The handlers of SIGSEGV and SIGBUS.
//!
//! A program may install a handler after ours and remember ours as the one to call next. When ours steps in
//! front again, a single entry would call that program's handler, which calls the entry, without end. So
//! there are several entries, each with what it stepped in front of: the newest calls the program's handler,
//! which calls the older entry, which calls what stood there at first.

use super::exception_table::landing_of;
use crate::Error;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Entries of each signal.
const ENTRIES: usize = 16;

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// The handler that an entry stands in front of, and its flags.
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
/// Held by the thread that changes handlers. Who finds it held leaves the change to its holder.
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
        // Without a place for one more handler the program's own stays where it is.
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

/// Steps in front of the handler of one signal, unless it is ours.
fn step_in_front_of(which: usize) -> Result<(), Error> {
    let now = exchange(SIGNALS[which], None)?;
    if HANDLERS.iter().any(|handler| *handler as usize == now.sa_sigaction) {
        return Ok(());
    }
    let entries = &CHAINED[which];
    // A program that installs the same handler time and again uses up one entry.
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
        // What the program's handler wants blocked, the kernel blocks for it.
        sa_mask: now.sa_mask,
        sa_flags: libc::SA_SIGINFO | libc::SA_ONSTACK | kept,
        sa_restorer: None,
    };
    exchange(SIGNALS[which], Some(&ours)).map(drop)
}

/// Reads the action of a signal, and sets another one.
fn exchange(signal: c_int, new: Option<&libc::sigaction>) -> Result<libc::sigaction, Error> {
    // SAFETY: zero is a value of it.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: both are actions or null; a handler of ours may run at any moment.
    match unsafe { libc::sigaction(signal, new, &mut old) } {
        0 => Ok(old),
        _ => Err(Error::Os(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL))),
    }
}

fn faulted(number: usize, signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel, or a handler that passes on what it got, gives both.
    let (by_kernel, at) = unsafe {
        let machine = &raw mut (*context.cast::<libc::ucontext_t>()).uc_mcontext;
        (!info.is_null() && (*info).si_code > 0, &raw mut (*machine).gregs[libc::REG_RIP as usize])
    };
    // SAFETY: as above; the thread goes on where the register points when the handler returns.
    if by_kernel && let Some(landing) = landing_of(unsafe { *at } as usize) {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: a landing is a place where the block's function goes on after a fault.
        unsafe { *at = landing as i64 };
        return;
    }
    pass_on(number, signal, by_kernel, info, context);
}

/// Lets the handler decide that this entry stands in front of.
#[cold]
fn pass_on(number: usize, signal: c_int, by_kernel: bool, info: *mut libc::siginfo_t, context: *mut c_void) {
    let next = &CHAINED[usize::from(signal == libc::SIGBUS)][number];
    let once = next.flags.load(Ordering::Relaxed) & libc::SA_RESETHAND as usize != 0;
    let handler = next.handler.load(Ordering::Acquire);
    if once {
        next.handler.store(libc::SIG_DFL, Ordering::Relaxed);
    }
    match handler {
        // The kernel ignores no fault of a thread's own.
        libc::SIG_IGN if !by_kernel => {}
        libc::SIG_DFL | libc::SIG_IGN => die(signal, by_kernel),
        _ => {
            // SAFETY: the program gave this address as a handler. One without SA_SIGINFO takes the first
            // argument alone, which x86-64's calling convention allows.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
            handler(signal, info, context);
        }
    }
}

/// The default action. A fault comes again when the handler returns; a signal that was sent is sent again.
fn die(signal: c_int, by_kernel: bool) {
    // SAFETY: zero is a value of it: the default action.
    let default: libc::sigaction = unsafe { std::mem::zeroed() };
    let _ = exchange(signal, Some(&default));
    if !by_kernel {
        // SAFETY: sends a signal to this thread.
        unsafe { libc::raise(signal) };
    }
}
