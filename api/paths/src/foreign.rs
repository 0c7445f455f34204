//! One line about a libibverbs or librdmacm of the program's own, such as one that a Python wheel brings
//! under another name: `remora run` has not replaced it, and the program finds no device by it.
//!
//! The objects are looked at when the program begins, when one of them asks the kernel for devices, and when
//! the program ends, since any of them may be loaded later. No function of the dynamic linker is intercepted.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::rewrite::{PATH_MAX, folder};

/// The start of the names of the files that Remora's libraries replace.
const REPLACED: [&[u8]; 2] = [b"libibverbs", b"librdmacm"];

#[used]
#[unsafe(link_section = ".init_array")]
static BEGINS: extern "C" fn() = tell;
#[used]
#[unsafe(link_section = ".fini_array")]
static ENDS: extern "C" fn() = tell;

/// Says once on the standard error which library is not Remora's, if there is one.
pub extern "C" fn tell() {
    static SAID: AtomicBool = AtomicBool::new(false);
    if SAID.load(Ordering::Relaxed) || folder().is_none() {
        return;
    }
    // SAFETY: the function is called for each object, with the list's locks held.
    if unsafe { libc::dl_iterate_phdr(Some(look), null_mut()) } != 0 {
        SAID.store(true, Ordering::Relaxed);
    }
}

/// Returns 1, which ends the walk, when the object is a foreign one.
unsafe extern "C" fn look(object: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker's, for this call.
    let name = unsafe { (*object).dlpi_name };
    if name.is_null() {
        return 0;
    }
    // SAFETY: a C string.
    let path = unsafe { CStr::from_ptr(name) }.to_bytes();
    let Some(slash) = path.iter().rposition(|byte| *byte == b'/') else { return 0 };
    let file = &path[slash + 1..];
    if !REPLACED.iter().any(|begin| file.starts_with(begin)) || is_own(&path[..=slash]) {
        return 0;
    }
    say(path);
    1
}

/// True if this folder is the one that this library was loaded from.
fn is_own(folder: &[u8]) -> bool {
    let mut own = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the address is one of this object, and the C library writes one `Dl_info`, whose name is a C
    // string for an object that it knows.
    let own = unsafe {
        if libc::dladdr(tell as *const c_void, own.as_mut_ptr()) == 0 {
            return false;
        }
        CStr::from_ptr(own.assume_init().dli_fname).to_bytes()
    };
    let end = own.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    matches!((identity(folder), identity(&own[..end])), (Some(one), Some(other)) if one == other)
}

/// The device and the inode of a folder, whose path ends with a slash.
fn identity(folder: &[u8]) -> Option<[u64; 2]> {
    let mut path = [0u8; PATH_MAX];
    path.get_mut(..folder.len()).filter(|_| folder.len() < PATH_MAX)?.copy_from_slice(folder);
    let mut found = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: a C string, and space for the answer. A system call, since the C library's function of this
    // name is this library's.
    let got =
        unsafe { libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path.as_ptr(), found.as_mut_ptr(), 0) };
    // SAFETY: the kernel has written it.
    (got == 0).then(|| unsafe { found.assume_init() }).map(|found| [found.st_dev, found.st_ino])
}

/// One line in one write, so that lines of several processes stay apart.
fn say(path: &[u8]) {
    let mut line = [0u8; PATH_MAX + 256];
    let mut len = 0;
    let parts: [&[u8]; 3] = [
        b"remora: ",
        path,
        b" is this program's own and was not replaced: it finds no device (docs/guides/drop-in.md, What it cannot reach)\n",
    ];
    for part in parts {
        let Some(space) = line.get_mut(len..len + part.len()) else { return };
        space.copy_from_slice(part);
        len += part.len();
    }
    // A path may have bytes that a terminal would obey.
    for byte in &mut line[..len - 1] {
        if byte.is_ascii_control() {
            *byte = b'?';
        }
    }
    // SAFETY: as many bytes as there are.
    unsafe { libc::syscall(libc::SYS_write, libc::STDERR_FILENO, line.as_ptr(), len) };
}
