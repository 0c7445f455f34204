//! Functions that read links and resolve paths. A resolved path does not show the folder of the tree.

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

use super::stat::at;
use crate::rewrite::out_of_tree;

/// Replaces the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn readlink(path: *const c_char, buffer: *mut c_char, size: usize) -> isize {
    // SAFETY: the arguments are the program's.
    unsafe {
        at(libc::AT_FDCWD, path, |_, path| {
            next!(c"readlink" as fn(*const c_char, *mut c_char, usize) -> isize,
                (path, buffer, size) or -1)
        })
    }
}

/// Replaces the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn readlinkat(
    dir: c_int,
    path: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> isize {
    // SAFETY: the arguments are the program's.
    unsafe {
        at(dir, path, |dir, path| {
            next!(c"readlinkat" as fn(c_int, *const c_char, *mut c_char, usize) -> isize,
                (dir, path, buffer, size) or -1)
        })
    }
}

/// Replaces the C library's function of this name, which the compiler calls if it knows the size of the
/// buffer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __readlink_chk(
    path: *const c_char,
    buffer: *mut c_char,
    size: usize,
    known: usize,
) -> isize {
    // SAFETY: the arguments are the program's.
    unsafe {
        at(libc::AT_FDCWD, path, |_, path| {
            next!(c"__readlink_chk" as fn(*const c_char, *mut c_char, usize, usize) -> isize,
                (path, buffer, size, known) or -1)
        })
    }
}

/// Replaces the C library's function of this name, which the compiler calls if it knows the size of the
/// buffer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __readlinkat_chk(
    dir: c_int,
    path: *const c_char,
    buffer: *mut c_char,
    size: usize,
    known: usize,
) -> isize {
    // SAFETY: the arguments are the program's.
    unsafe {
        at(dir, path, |dir, path| {
            next!(c"__readlinkat_chk" as fn(c_int, *const c_char, *mut c_char, usize, usize) -> isize,
                (dir, path, buffer, size, known) or -1)
        })
    }
}

/// Replaces the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn realpath(path: *const c_char, buffer: *mut c_char) -> *mut c_char {
    // SAFETY: the arguments are the program's, and the next function returns NULL or a string.
    unsafe {
        let resolved = at(libc::AT_FDCWD, path, |_, path| {
            next!(c"realpath" as fn(*const c_char, *mut c_char) -> *mut c_char,
                (path, buffer) or null_mut())
        });
        out_of_tree(resolved);
        resolved
    }
}

/// Replaces the C library's function of this name, which the compiler calls if it knows the size of the
/// buffer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __realpath_chk(
    path: *const c_char,
    buffer: *mut c_char,
    known: usize,
) -> *mut c_char {
    // SAFETY: the reasons are those in `realpath`.
    unsafe {
        let resolved = at(libc::AT_FDCWD, path, |_, path| {
            next!(c"__realpath_chk" as fn(*const c_char, *mut c_char, usize) -> *mut c_char,
                (path, buffer, known) or null_mut())
        });
        out_of_tree(resolved);
        resolved
    }
}

/// Replaces the C library's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn canonicalize_file_name(path: *const c_char) -> *mut c_char {
    // SAFETY: the reasons are those in `realpath`.
    unsafe {
        let resolved = at(
            libc::AT_FDCWD,
            path,
            |_, path| next!(c"canonicalize_file_name" as fn(*const c_char) -> *mut c_char, (path) or null_mut()),
        );
        out_of_tree(resolved);
        resolved
    }
}
