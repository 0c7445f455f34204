//! The end of an id.

use remora_abi::cma::RdmaCmId;
use std::ffi::c_int;

use crate::id::IDS;
use crate::{errno, multicast, registry, sync};

/// Ends an id in any state. Returns when all events of it are acknowledged; its peer gets to know.
pub fn destroy(id: *const RdmaCmId) -> Result<(), c_int> {
    let id = IDS.take(id)?;
    if id.manager.is_foreign() {
        // The parent still has it.
        std::mem::forget(id);
        return Ok(());
    }
    multicast::leave_all(&id);
    // The broker may be gone, and the id with it.
    let _ = id.manager.client.destroy(id.number);
    registry::remove(&id);
    if id.state().is_sync {
        sync::forget_event(&id);
    }
    id.outstanding.wait();
    Ok(())
}

/// Ends an id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_id(id: *mut RdmaCmId) -> c_int {
    errno::minus_one(destroy(id))
}
