//! Functions that open files. The broker opens counter files, with the values of that moment.

use libc::{FILE, mode_t};
use std::ffi::{c_char, c_int};

use crate::counter;
use crate::next::{errno, set_errno};
use crate::rewrite::{Found, find, may_be_own};

/// Opens a counter through the broker. Returns `None` if the path is not that of a counter, the program does
/// not open it for reading, or no broker answers.
fn counted(target: &Found, flags: c_int) -> Option<c_int> {
    let reads = flags & libc::O_ACCMODE == libc::O_RDONLY;
    let name = target.counter().filter(|_| reads && flags & (libc::O_PATH | libc::O_DIRECTORY) == 0)?;
    let kept = errno();
    let opened = counter::open(name, flags & libc::O_CLOEXEC != 0);
    set_errno(kept);
    opened
}

/// Calls `go` with the folder and path to use in place of the program's.
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
    // SAFETY: the caller meets the conditions.
    unsafe { if may_be_own(path) { open_own(dir, path, flags, go) } else { go(dir, path) } }
}

/// A separate function, because its path buffer is too large for the stack of a signal handler.
#[inline(never)]
unsafe fn open_own(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    go: impl FnOnce(c_int, *const c_char) -> c_int,
) -> c_int {
    // SAFETY: the path is a C string by the caller's promise.
    let Some(target) = (unsafe { find(dir, path) }) else { return go(dir, path) };
    counted(&target, flags).unwrap_or_else(|| go(libc::AT_FDCWD, target.space.pointer()))
}

// The C library's functions take the mode as a variadic argument. On the 64-bit architectures that Remora
// supports it is passed like a third ordinary argument.
macro_rules! open {
    ($($name:ident $text:literal,)+) => {$(
        /// Replaces the C library's function of this name.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            // SAFETY: the arguments are the program's.
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
        /// Replaces the C library's function of this name.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            // SAFETY: the arguments are the program's.
            unsafe {
                opened(dir, path, flags, |dir, path| {
                    next!($text as fn(c_int, *const c_char, c_int, mode_t) -> c_int, (dir, path, flags, mode) or -1)
                })
            }
        }
    )+};
}
openat!(openat c"openat", openat64 c"openat64",);

// The functions that a compiler calls with _FORTIFY_SOURCE when the call has no mode.
macro_rules! open_2 {
    ($($name:ident $text:literal,)+) => {$(
        /// Replaces the C library's function of this name.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(path: *const c_char, flags: c_int) -> c_int {
            // SAFETY: the arguments are the program's.
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
        /// Replaces the C library's function of this name.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
            // SAFETY: the arguments are the program's.
            unsafe {
                opened(dir, path, flags, |dir, path| {
                    next!($text as fn(c_int, *const c_char, c_int) -> c_int, (dir, path, flags) or -1)
                })
            }
        }
    )+};
}
openat_2!(__openat_2 c"__openat_2", __openat64_2 c"__openat64_2",);

/// Opens a stream like `fopen`, by means of the function `go`.
///
/// # Safety
/// `path` is NULL or a C string, and `mode` is a C string.
#[inline]
unsafe fn opened_stream(
    path: *const c_char,
    mode: *const c_char,
    go: impl FnOnce(*const c_char) -> *mut FILE,
) -> *mut FILE {
    // SAFETY: the caller meets the conditions.
    unsafe { if may_be_own(path) { open_own_stream(path, mode, go) } else { go(path) } }
}

#[inline(never)]
unsafe fn open_own_stream(
    path: *const c_char,
    mode: *const c_char,
    go: impl FnOnce(*const c_char) -> *mut FILE,
) -> *mut FILE {
    // SAFETY: both strings are C strings by the caller's promise.
    unsafe {
        let Some(target) = find(libc::AT_FDCWD, path) else { return go(path) };
        match counted(&target, flags_of(mode)) {
            Some(descriptor) => libc::fdopen(descriptor, mode),
            None => go(target.space.pointer()),
        }
    }
}

macro_rules! fopen {
    ($($name:ident $text:literal,)+) => {$(
        /// Replaces the C library's function of this name.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char) -> *mut FILE {
            // SAFETY: the arguments are the program's.
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

/// Converts the mode of a stream to open flags, as far as they matter here.
///
/// # Safety
/// `mode` is a C string.
unsafe fn flags_of(mode: *const c_char) -> c_int {
    // SAFETY: `mode` is a C string by the caller's promise.
    let mode = unsafe { std::ffi::CStr::from_ptr(mode) }.to_bytes();
    let cloexec = if mode.contains(&b'e') { libc::O_CLOEXEC } else { 0 };
    let reads = mode.first() == Some(&b'r') && !mode.contains(&b'+');
    cloexec | if reads { libc::O_RDONLY } else { libc::O_RDWR }
}
