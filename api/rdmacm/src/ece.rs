//! Vendor options of connections: this device has none.

use remora_abi::cma::RdmaCmId;
use remora_abi::device::IbvEce;
use std::ffi::c_int;

use crate::{errno, ibverbs, id};

/// Takes options that no peer gets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_set_local_ece(id: *mut RdmaCmId, ece: *mut IbvEce) -> c_int {
    // SAFETY: NULL, or the program's.
    let ece = unsafe { ece.as_ref() }.filter(|ece| ece.comp_mask == 0);
    errno::minus_one(id::look(id).and_then(|_| ece.map(drop).ok_or(libc::EINVAL)))
}

/// Says that the peer has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_remote_ece(id: *mut RdmaCmId, ece: *mut IbvEce) -> c_int {
    errno::minus_one((|| {
        let id = id::look(id)?;
        // SAFETY: NULL, or the program's.
        let ece = unsafe { ece.as_mut() }.ok_or(libc::EINVAL)?;
        // A queue pair of the id would have taken them already.
        if !id.shown().qp.is_null() {
            return Err(libc::EINVAL);
        }
        *ece = ibverbs::zeroed();
        Ok(())
    })())
}
