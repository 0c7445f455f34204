//! A warning about a foreign libibverbs or librdmacm, such as one that a Python wheel contains under another
//! file name. `remora run` cannot replace it, so the program finds no Remora device through it.
//!
//! This module inspects the loaded objects when the program starts, when one of them asks the kernel for
//! devices, and when the program ends, because a program can load an object at any time. No function of the
//! dynamic linker is intercepted.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::rewrite::{PATH_MAX, folder};

/// The prefixes of the file names that Remora's libraries replace.
const REPLACED: [&[u8]; 2] = [b"libibverbs", b"librdmacm"];

#[used]
#[unsafe(link_section = ".init_array")]
static BEGINS: extern "C" fn() = tell;
#[used]
#[unsafe(link_section = ".fini_array")]
static ENDS: extern "C" fn() = tell;

/// Writes one line to the standard error if a foreign library is loaded. The line appears once in a process.
pub(crate) extern "C" fn tell() {
    static SAID: AtomicBool = AtomicBool::new(false);
    if SAID.load(Ordering::Relaxed) || folder().is_none() {
        return;
    }
    // SAFETY: the C library calls the function for each object while it holds the locks of its list.
    if unsafe { libc::dl_iterate_phdr(Some(look), null_mut()) } != 0 {
        SAID.store(true, Ordering::Relaxed);
    }
}

/// Returns 1, which ends the iteration, if the object is a foreign library.
unsafe extern "C" fn look(object: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker passes an object that is valid during this call.
    let name = unsafe { (*object).dlpi_name };
    if name.is_null() {
        return 0;
    }
    // SAFETY: the name is a C string.
    let path = unsafe { CStr::from_ptr(name) }.to_bytes();
    let Some(slash) = path.iter().rposition(|byte| *byte == b'/') else { return 0 };
    let file = &path[slash + 1..];
    if !REPLACED.iter().any(|begin| file.starts_with(begin)) || is_own(&path[..=slash]) {
        return 0;
    }
    say(path);
    1
}

/// Returns true if this library was loaded from the given folder.
fn is_own(folder: &[u8]) -> bool {
    let mut own = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the address belongs to this object, and the C library fills in one `Dl_info`, whose name is a C
    // string if the object is known.
    let own = unsafe {
        if libc::dladdr(tell as *const c_void, own.as_mut_ptr()) == 0 {
            return false;
        }
        CStr::from_ptr(own.assume_init().dli_fname).to_bytes()
    };
    let end = own.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    matches!((identity(folder), identity(&own[..end])), (Some(one), Some(other)) if one == other)
}

/// Returns the device and the inode of a folder. The path must end with a slash.
fn identity(folder: &[u8]) -> Option<[u64; 2]> {
    let mut path = [0u8; PATH_MAX];
    path.get_mut(..folder.len()).filter(|_| folder.len() < PATH_MAX)?.copy_from_slice(folder);
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the path is a C string, and there is space for the answer. The code makes a system call,
    // because this library replaces the C function.
    let got =
        unsafe { libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path.as_ptr(), stat.as_mut_ptr(), 0) };
    // SAFETY: the kernel has filled in the structure.
    (got == 0).then(|| unsafe { stat.assume_init() }).map(|stat| [stat.st_dev, stat.st_ino])
}

/// Writes the line with a single write, so that the lines of several processes do not mix.
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
    // A path can contain control characters, which a terminal would interpret.
    for byte in &mut line[..len - 1] {
        if byte.is_ascii_control() {
            *byte = b'?';
        }
    }
    // SAFETY: the line has at least `len` bytes.
    unsafe { libc::syscall(libc::SYS_write, libc::STDERR_FILENO, line.as_ptr(), len) };
}
