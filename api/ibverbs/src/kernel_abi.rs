//! Attributes as the kernel's connection manager hands them to rdma-core's librdmacm. There is no such kernel
//! here: what is asked for is emptied.

use remora_abi::queue_pair::{IbvAhAttr, IbvQpAttr};
use std::ffi::c_void;

/// Bytes of `struct ibv_sa_path_rec`.
const PATH_RECORD: usize = 72;

/// Empties an address vector.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_copy_ah_attr_from_kern(out: *mut IbvAhAttr, _from: *const c_void) {
    // SAFETY: the caller's own, all of whose values may be zero.
    unsafe { out.write_bytes(0, 1) };
}

/// Empties the attributes of a queue pair.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_copy_qp_attr_from_kern(out: *mut IbvQpAttr, _from: *const c_void) {
    // SAFETY: as above.
    unsafe { out.write_bytes(0, 1) };
}

/// Empties a path record.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_copy_path_rec_from_kern(out: *mut c_void, _from: *const c_void) {
    // SAFETY: as above; a record has so many bytes.
    unsafe { out.cast::<u8>().write_bytes(0, PATH_RECORD) };
}

/// Empties the kernel's form of a path record.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_copy_path_rec_to_kern(out: *mut c_void, _from: *const c_void) {
    // SAFETY: as above; the kernel's form has no fewer.
    unsafe { out.cast::<u8>().write_bytes(0, PATH_RECORD) };
}
