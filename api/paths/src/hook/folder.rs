//! Functions that read a folder or change the working folder.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

use super::stat::at;

/// Replaces the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn opendir(path: *const c_char) -> *mut c_void {
    // SAFETY: the arguments are the program's.
    unsafe {
        at(
            libc::AT_FDCWD,
            path,
            |_, path| next!(c"opendir" as fn(*const c_char) -> *mut c_void, (path) or null_mut()),
        )
    }
}

/// Replaces the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn chdir(path: *const c_char) -> c_int {
    // SAFETY: the arguments are the program's.
    unsafe { at(libc::AT_FDCWD, path, |_, path| next!(c"chdir" as fn(*const c_char) -> c_int, (path) or -1)) }
}

/// The program's function that selects or compares entries.
type Entries = *mut c_void;

macro_rules! scandir {
    ($($name:ident $text:literal,)+) => {$(
        /// Replaces the C library's function of this name.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            path: *const c_char,
            list: *mut c_void,
            choose: Entries,
            compare: Entries,
        ) -> c_int {
            // SAFETY: the arguments are the program's.
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
        /// Replaces the C library's function of this name.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            dir: c_int,
            path: *const c_char,
            list: *mut c_void,
            choose: Entries,
            compare: Entries,
        ) -> c_int {
            // SAFETY: the arguments are the program's.
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
