//! Conversions between rdma-core's librdmacm and the kernel's connection manager. There is no such kernel
//! here, so the functions only zero their output.

use remora_abi::queue_pair::{IbvAhAttr, IbvQpAttr};
use remora_abi::sa::{IbUserPathRec, IbvSaPathRec};
use std::ffi::c_void;

/// Zeroes an address vector.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_copy_ah_attr_from_kern(out: *mut IbvAhAttr, _from: *const c_void) {
    // SAFETY: the caller's structure, in which every value may be zero.
    unsafe { out.write_bytes(0, 1) };
}

/// Zeroes the attributes of a queue pair.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_copy_qp_attr_from_kern(out: *mut IbvQpAttr, _from: *const c_void) {
    // SAFETY: as above.
    unsafe { out.write_bytes(0, 1) };
}

/// Zeroes a path record.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_copy_path_rec_from_kern(
    out: *mut IbvSaPathRec,
    _from: *const IbUserPathRec,
) {
    // SAFETY: as above.
    unsafe { out.write_bytes(0, 1) };
}

/// Zeroes a path record in the kernel's format.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_copy_path_rec_to_kern(
    out: *mut IbUserPathRec,
    _from: *const IbvSaPathRec,
) {
    // SAFETY: as above.
    unsafe { out.write_bytes(0, 1) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of a program, followed by other bytes of the program.
    #[repr(C)]
    struct Beside<T> {
        record: T,
        behind: [u8; 16],
    }

    /// Regression: `ibv_copy_path_rec_from_kern` and `ibv_copy_path_rec_to_kern` wrote 8 bytes behind
    /// the caller's record.
    #[test]
    fn nothing_behind_a_path_record_is_emptied() {
        const FULL: [u8; 16] = [0xff; 16];
        // SAFETY: records are numbers alone.
        let mut shown: Beside<IbvSaPathRec> = unsafe { std::mem::zeroed() };
        (shown.record.reversible, shown.record.preference, shown.behind) = (1, 1, FULL);
        // SAFETY: the place is a record.
        unsafe { ibv_copy_path_rec_from_kern(&mut shown.record, std::ptr::null()) };
        assert_eq!((shown.record.reversible, shown.record.preference, shown.behind), (0, 0, FULL));
        // SAFETY: as above.
        let mut kernels: Beside<IbUserPathRec> = unsafe { std::mem::zeroed() };
        (kernels.record.reversible, kernels.record.preference, kernels.behind) = (1, 1, FULL);
        // SAFETY: as above.
        unsafe { ibv_copy_path_rec_to_kern(&mut kernels.record, std::ptr::null()) };
        assert_eq!((kernels.record.reversible, kernels.record.preference, kernels.behind), (0, 0, FULL));
    }
}
