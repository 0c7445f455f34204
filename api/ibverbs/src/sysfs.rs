//! Functions that read files of sysfs for programs.

use remora_abi::device::IbvDevice;
use remora_broker::environment;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use crate::errno;

/// Returns the mount point of sysfs.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    static PATH: OnceLock<std::ffi::CString> = OnceLock::new();
    let path = PATH.get_or_init(|| {
        let chosen = environment::variable("SYSFS_PATH").unwrap_or_else(|| "/sys".into());
        std::ffi::CString::new(chosen.as_bytes()).unwrap_or_default()
    });
    path.as_ptr()
}

fn read(dir: &Path, file: &OsStr, out: *mut c_char, capacity: usize) -> c_int {
    let bytes = match std::fs::read(dir.join(file)) {
        Ok(bytes) => bytes,
        Err(error) => {
            errno::set(error.raw_os_error().unwrap_or(libc::EIO));
            return -1;
        }
    };
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let count = bytes.len().min(capacity.saturating_sub(1));
    if out.is_null() || capacity == 0 {
        return -1;
    }
    // SAFETY: the program has `capacity` bytes there.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), out.cast(), count);
        out.add(count).write(0);
    }
    count as c_int
}

/// Reads the first line of a file into a string. Returns its length, or -1.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    out: *mut c_char,
    capacity: usize,
) -> c_int {
    if dir.is_null() || file.is_null() {
        return -1;
    }
    // SAFETY: strings of the program.
    let (dir, file) = unsafe { (CStr::from_ptr(dir), CStr::from_ptr(file)) };
    read(Path::new(OsStr::from_bytes(dir.to_bytes())), OsStr::from_bytes(file.to_bytes()), out, capacity)
}

/// Like [`ibv_read_sysfs_file`], for a file in the device's folder. The function is private to rdma-core.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_read_ibdev_sysfs_file(
    out: *mut c_char,
    capacity: usize,
    device: *mut IbvDevice,
    file: *const c_char,
) -> c_int {
    // SAFETY: NULL, or the device of the list.
    let Some(device) = (unsafe { device.as_ref() }) else { return -1 };
    // SAFETY: as for the function above.
    unsafe { ibv_read_sysfs_file(device.ibdev_path.as_ptr(), file, out, capacity) }
}
