//! Folders: reading one, and working in one.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

use super::stat::at;

/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn opendir(path: *const c_char) -> *mut c_void {
    // SAFETY: the program's arguments.
    unsafe {
        at(
            libc::AT_FDCWD,
            path,
            |_, path| next!(c"opendir" as fn(*const c_char) -> *mut c_void, (path) or null_mut()),
        )
    }
}

/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chdir(path: *const c_char) -> c_int {
    // SAFETY: the program's arguments.
    unsafe { at(libc::AT_FDCWD, path, |_, path| next!(c"chdir" as fn(*const c_char) -> c_int, (path) or -1)) }
}

/// A function that chooses or compares entries; the program's.
type Entries = *mut c_void;

macro_rules! scandir {
    ($($name:ident $text:literal,)+) => {$(
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            path: *const c_char,
            list: *mut c_void,
            choose: Entries,
            compare: Entries,
        ) -> c_int {
            // SAFETY: the program's arguments.
            unsafe {
                at(libc::AT_FDCWD, path, |_, path| {
                    next!($text as fn(*const c_char, *mut c_void, Entries, Entries) -> c_int,
                        (path, list, choose, compare) or -1)
                })
            }
        }
    )+};
}
scandir!(scandir c"scandir", scandir64 c"scandir64",);

macro_rules! scandirat {
    ($($name:ident $text:literal,)+) => {$(
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            dir: c_int,
            path: *const c_char,
            list: *mut c_void,
            choose: Entries,
            compare: Entries,
        ) -> c_int {
            // SAFETY: the program's arguments.
            unsafe {
                at(dir, path, |dir, path| {
                    next!($text as fn(c_int, *const c_char, *mut c_void, Entries, Entries) -> c_int,
                        (dir, path, list, choose, compare) or -1)
                })
            }
        }
    )+};
}
scandirat!(scandirat c"scandirat", scandirat64 c"scandirat64",);
