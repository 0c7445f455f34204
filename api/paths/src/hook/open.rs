//! Opening files. A counter is opened by the broker, as it is at that moment.

use libc::{FILE, mode_t};
use std::ffi::{c_char, c_int};

use crate::counter;
use crate::next::{errno, set_errno};
use crate::rewrite::{Found, find, may_be_own};

/// The counter that a path of the device's names, opened by the broker; `None`: it is none, or the program
/// does not read it, or no broker answers.
fn counted(found: &Found, flags: c_int) -> Option<c_int> {
    let reads = flags & libc::O_ACCMODE == libc::O_RDONLY;
    let name = found.counter().filter(|_| reads && flags & (libc::O_PATH | libc::O_DIRECTORY) == 0)?;
    let kept = errno();
    let opened = counter::open(name, flags & libc::O_CLOEXEC != 0);
    set_errno(kept);
    opened
}

/// Calls `go` with the folder and the path that the program's lead to.
///
/// # Safety
/// `path` is NULL or a C string.
#[inline]
unsafe fn opened(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    go: impl FnOnce(c_int, *const c_char) -> c_int,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { if may_be_own(path) { open_own(dir, path, flags, go) } else { go(dir, path) } }
}

/// Apart, since the space for a path is large for the stack of a signal handler.
#[inline(never)]
unsafe fn open_own(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    go: impl FnOnce(c_int, *const c_char) -> c_int,
) -> c_int {
    // SAFETY: as the caller says.
    let Some(found) = (unsafe { find(dir, path) }) else { return go(dir, path) };
    counted(&found, flags).unwrap_or_else(|| go(libc::AT_FDCWD, found.space.pointer()))
}

// The C library's functions take the mode as a variadic argument, which is passed as a third one would be on
// every 64-bit architecture of Linux that Remora runs on.
macro_rules! open {
    ($($name:ident $text:literal,)+) => {$(
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            // SAFETY: the program's arguments.
            unsafe {
                opened(libc::AT_FDCWD, path, flags, |_, path| {
                    next!($text as fn(*const c_char, c_int, mode_t) -> c_int, (path, flags, mode) or -1)
                })
            }
        }
    )+};
}
open!(open c"open", open64 c"open64",);

macro_rules! openat {
    ($($name:ident $text:literal,)+) => {$(
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            // SAFETY: the program's arguments.
            unsafe {
                opened(dir, path, flags, |dir, path| {
                    next!($text as fn(c_int, *const c_char, c_int, mode_t) -> c_int, (dir, path, flags, mode) or -1)
                })
            }
        }
    )+};
}
openat!(openat c"openat", openat64 c"openat64",);

// What a compiler with _FORTIFY_SOURCE calls where there is no mode.
macro_rules! open_2 {
    ($($name:ident $text:literal,)+) => {$(
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, flags: c_int) -> c_int {
            // SAFETY: the program's arguments.
            unsafe {
                opened(libc::AT_FDCWD, path, flags, |_, path| {
                    next!($text as fn(*const c_char, c_int) -> c_int, (path, flags) or -1)
                })
            }
        }
    )+};
}
open_2!(__open_2 c"__open_2", __open64_2 c"__open64_2",);

macro_rules! openat_2 {
    ($($name:ident $text:literal,)+) => {$(
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
            // SAFETY: the program's arguments.
            unsafe {
                opened(dir, path, flags, |dir, path| {
                    next!($text as fn(c_int, *const c_char, c_int) -> c_int, (dir, path, flags) or -1)
                })
            }
        }
    )+};
}
openat_2!(__openat_2 c"__openat_2", __openat64_2 c"__openat64_2",);

/// As `fopen`, by the function `go`.
///
/// # Safety
/// `path` is NULL or a C string, and `mode` is a C string.
#[inline]
unsafe fn opened_stream(
    path: *const c_char,
    mode: *const c_char,
    go: impl FnOnce(*const c_char) -> *mut FILE,
) -> *mut FILE {
    // SAFETY: as the caller says.
    unsafe { if may_be_own(path) { open_own_stream(path, mode, go) } else { go(path) } }
}

#[inline(never)]
unsafe fn open_own_stream(
    path: *const c_char,
    mode: *const c_char,
    go: impl FnOnce(*const c_char) -> *mut FILE,
) -> *mut FILE {
    // SAFETY: as the caller says.
    unsafe {
        let Some(found) = find(libc::AT_FDCWD, path) else { return go(path) };
        match counted(&found, flags_of(mode)) {
            Some(descriptor) => libc::fdopen(descriptor, mode),
            None => go(found.space.pointer()),
        }
    }
}

macro_rules! fopen {
    ($($name:ident $text:literal,)+) => {$(
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char) -> *mut FILE {
            // SAFETY: the program's arguments.
            unsafe {
                opened_stream(path, mode, |path| {
                    next!($text as fn(*const c_char, *const c_char) -> *mut FILE,
                        (path, mode) or std::ptr::null_mut())
                })
            }
        }
    )+};
}
fopen!(fopen c"fopen", fopen64 c"fopen64",);

/// The flags of a mode, as far as they matter here.
///
/// # Safety
/// `mode` is a C string.
unsafe fn flags_of(mode: *const c_char) -> c_int {
    // SAFETY: a C string.
    let mode = unsafe { std::ffi::CStr::from_ptr(mode) }.to_bytes();
    let cloexec = if mode.contains(&b'e') { libc::O_CLOEXEC } else { 0 };
    let reads = mode.first() == Some(&b'r') && !mode.contains(&b'+');
    cloexec | if reads { libc::O_RDONLY } else { libc::O_RDWR }
}
