//! Events that programs write themselves.

use remora_abi::cma::{RdmaCmId, event_type};
use std::ffi::c_int;

use crate::{errno, id, post};

/// Puts an event of the program into the id's channel, with a status and a number of the program's choice.
/// EINVAL for events other than `RDMA_CM_EVENT_USER`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_write_cm_event(
    id: *mut RdmaCmId,
    event: c_int,
    status: c_int,
    arg: u64,
) -> c_int {
    errno::minus_one(id::look(id).and_then(|id| {
        if event != event_type::USER {
            return Err(libc::EINVAL);
        }
        post::post(&id, event, status, arg)
    }))
}
