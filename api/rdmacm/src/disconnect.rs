//! Ending of connections.

use remora_abi::cma::RdmaCmId;
use std::ffi::c_int;

use crate::id::{IdObject, Phase};
use crate::{errno, id, qp_state, sync};

fn disconnect(id: &IdObject) -> Result<(), c_int> {
    if id.is_datagrams() || id.state().phase != Phase::Connecting {
        return Err(libc::EINVAL);
    }
    qp_state::fail(id);
    match id.manager.client.disconnect(id.number, &[]) {
        // The connection is over already, which is no error.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
        done => done.map_err(|error| errno::of_io(&error))?,
    }
    sync::complete(id)
}

/// Ends a connection, or confirms its end. Work posted to the queue pair is flushed.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_disconnect(id: *mut RdmaCmId) -> c_int {
    errno::minus_one(id::look(id).and_then(|id| disconnect(&id)))
}
