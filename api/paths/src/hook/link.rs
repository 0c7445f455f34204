//! Links, and paths without any. What was resolved is shown without the tree's folder.

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

use super::stat::at;
use crate::rewrite::out_of_tree;

/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readlink(path: *const c_char, to: *mut c_char, size: usize) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        at(
            libc::AT_FDCWD,
            path,
            |_, path| next!(c"readlink" as fn(*const c_char, *mut c_char, usize) -> isize, (path, to, size) or -1),
        )
    }
}

/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readlinkat(dir: c_int, path: *const c_char, to: *mut c_char, size: usize) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        at(dir, path, |dir, path| {
            next!(c"readlinkat" as fn(c_int, *const c_char, *mut c_char, usize) -> isize,
                (dir, path, to, size) or -1)
        })
    }
}

/// As the C library's, for a compiler that knows the buffer's size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __readlink_chk(
    path: *const c_char,
    to: *mut c_char,
    size: usize,
    known: usize,
) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        at(libc::AT_FDCWD, path, |_, path| {
            next!(c"__readlink_chk" as fn(*const c_char, *mut c_char, usize, usize) -> isize,
                (path, to, size, known) or -1)
        })
    }
}

/// As the C library's, for a compiler that knows the buffer's size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __readlinkat_chk(
    dir: c_int,
    path: *const c_char,
    to: *mut c_char,
    size: usize,
    known: usize,
) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        at(dir, path, |dir, path| {
            next!(c"__readlinkat_chk" as fn(c_int, *const c_char, *mut c_char, usize, usize) -> isize,
                (dir, path, to, size, known) or -1)
        })
    }
}

/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realpath(path: *const c_char, to: *mut c_char) -> *mut c_char {
    // SAFETY: the program's arguments, and a string that the next function made.
    unsafe {
        let resolved = at(
            libc::AT_FDCWD,
            path,
            |_, path| next!(c"realpath" as fn(*const c_char, *mut c_char) -> *mut c_char, (path, to) or null_mut()),
        );
        out_of_tree(resolved);
        resolved
    }
}

/// As the C library's, for a compiler that knows the buffer's size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __realpath_chk(path: *const c_char, to: *mut c_char, known: usize) -> *mut c_char {
    // SAFETY: as for `realpath`.
    unsafe {
        let resolved = at(libc::AT_FDCWD, path, |_, path| {
            next!(c"__realpath_chk" as fn(*const c_char, *mut c_char, usize) -> *mut c_char,
                (path, to, known) or null_mut())
        });
        out_of_tree(resolved);
        resolved
    }
}

/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn canonicalize_file_name(path: *const c_char) -> *mut c_char {
    // SAFETY: as for `realpath`.
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
