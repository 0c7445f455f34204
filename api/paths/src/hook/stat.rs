//! Functions that query the status, the access rights or the extended attributes of a file.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::rewrite::{find, may_be_own};

/// Calls `go` with the folder and path to use in place of the program's.
///
/// # Safety
/// `path` is NULL or a C string.
#[inline]
pub(super) unsafe fn at<T>(dir: c_int, path: *const c_char, go: impl FnOnce(c_int, *const c_char) -> T) -> T {
    // SAFETY: the caller meets the conditions.
    unsafe { if may_be_own(path) { rewritten(dir, path, go) } else { go(dir, path) } }
}

/// A separate function, because its path buffer is too large for the stack of a signal handler.
#[inline(never)]
unsafe fn rewritten<T>(dir: c_int, path: *const c_char, go: impl FnOnce(c_int, *const c_char) -> T) -> T {
    // SAFETY: the path is a C string by the caller's promise.
    match unsafe { find(dir, path) } {
        None => go(dir, path),
        Some(target) => go(libc::AT_FDCWD, target.space.pointer()),
    }
}

/// Defines functions whose first argument is a path.
macro_rules! path_first {
    ($($name:ident $text:literal ($($argument:ident: $type:ty),*) -> $result:ty;)+) => {$(
        /// Replaces the C library's function of this name.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(path: *const c_char, $($argument: $type),*) -> $result {
            // SAFETY: the arguments are the program's.
            unsafe {
                at(libc::AT_FDCWD, path, |_, path| {
                    next!($text as fn(*const c_char, $($type),*) -> $result, (path, $($argument),*) or -1)
                })
            }
        }
    )+};
}

/// Defines functions whose path is relative to a folder; the arguments of `$before` precede both.
macro_rules! path_at {
    ($($name:ident $text:literal ($($before:ident: $early:ty),*) ($($argument:ident: $type:ty),*) -> $result:ty;)+) => {$(
        /// Replaces the C library's function of this name.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            $($before: $early,)* dir: c_int, path: *const c_char, $($argument: $type),*
        ) -> $result {
            // SAFETY: the arguments are the program's.
            unsafe {
                at(dir, path, |dir, path| {
                    next!($text as fn($($early,)* c_int, *const c_char, $($type),*) -> $result,
                        ($($before,)* dir, path, $($argument),*) or -1)
                })
            }
        }
    )+};
}

path_first! {
    stat c"stat" (buffer: *mut c_void) -> c_int;
    stat64 c"stat64" (buffer: *mut c_void) -> c_int;
    lstat c"lstat" (buffer: *mut c_void) -> c_int;
    lstat64 c"lstat64" (buffer: *mut c_void) -> c_int;
    access c"access" (mode: c_int) -> c_int;
    eaccess c"eaccess" (mode: c_int) -> c_int;
    euidaccess c"euidaccess" (mode: c_int) -> c_int;
    statfs c"statfs" (buffer: *mut c_void) -> c_int;
    statfs64 c"statfs64" (buffer: *mut c_void) -> c_int;
    getxattr c"getxattr" (name: *const c_char, value: *mut c_void, size: usize) -> isize;
    lgetxattr c"lgetxattr" (name: *const c_char, value: *mut c_void, size: usize) -> isize;
    listxattr c"listxattr" (list: *mut c_char, size: usize) -> isize;
    llistxattr c"llistxattr" (list: *mut c_char, size: usize) -> isize;
}

path_at! {
    fstatat c"fstatat" () (buffer: *mut c_void, flags: c_int) -> c_int;
    fstatat64 c"fstatat64" () (buffer: *mut c_void, flags: c_int) -> c_int;
    statx c"statx" () (flags: c_int, mask: c_uint, buffer: *mut c_void) -> c_int;
    faccessat c"faccessat" () (mode: c_int, flags: c_int) -> c_int;
    __fxstatat c"__fxstatat" (version: c_int) (buffer: *mut c_void, flags: c_int) -> c_int;
    __fxstatat64 c"__fxstatat64" (version: c_int) (buffer: *mut c_void, flags: c_int) -> c_int;
}

// The functions that programs call if they were compiled for a version of the C library before 2.33.
macro_rules! versioned {
    ($($name:ident $text:literal,)+) => {$(
        /// Replaces the C library's function of this name.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(version: c_int, path: *const c_char, buffer: *mut c_void) -> c_int {
            // SAFETY: the arguments are the program's.
            unsafe {
                at(libc::AT_FDCWD, path, |_, path| {
                    next!($text as fn(c_int, *const c_char, *mut c_void) -> c_int,
                        (version, path, buffer) or -1)
                })
            }
        }
    )+};
}
versioned!(__xstat c"__xstat", __xstat64 c"__xstat64", __lxstat c"__lxstat", __lxstat64 c"__lxstat64",);
