//! Vendor options of connections (ECE), of which this device has none.

use remora_abi::cma::RdmaCmId;
use remora_abi::device::IbvEce;
use std::ffi::c_int;

use crate::{errno, ibverbs, id};

/// Accepts options, which are not sent to the peer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_set_local_ece(id: *mut RdmaCmId, ece: *mut IbvEce) -> c_int {
    // SAFETY: NULL, or the program's structure.
    let ece = unsafe { ece.as_ref() }.filter(|ece| ece.comp_mask == 0);
    errno::minus_one(id::look(id).and_then(|_| ece.map(drop).ok_or(libc::EINVAL)))
}

/// Returns empty options for the peer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_get_remote_ece(id: *mut RdmaCmId, ece: *mut IbvEce) -> c_int {
    errno::minus_one((|| {
        let id = id::look(id)?;
        // SAFETY: NULL, or the program's structure.
        let ece = unsafe { ece.as_mut() }.ok_or(libc::EINVAL)?;
        // As in rdma-core, options can only be queried while the id has no queue pair.
        if !id.shown().qp.is_null() {
            return Err(libc::EINVAL);
        }
        *ece = ibverbs::zeroed();
        Ok(())
    })())
}
