//! Destruction of ids.

use remora_abi::cma::RdmaCmId;
use std::ffi::c_int;
use std::sync::Arc;

use crate::channel::ChannelObject;
use crate::id::{IDS, IdObject};
use crate::{errno, multicast, registry, sync, unread};

/// Destroys an id in any state, and notifies its peer. Returns when all events of the id are acknowledged.
pub(crate) fn destroy(id: *const RdmaCmId) -> Result<(), c_int> {
    let id = IDS.take(id)?;
    if id.manager.is_foreign() {
        // The id belongs to the parent process and must not be dropped.
        std::mem::forget(id);
        return Ok(());
    }
    multicast::leave_all(&id);
    // Fails if the broker is gone, and the id with it.
    let _ = id.manager.client.destroy(id.number);
    registry::remove(&id);
    let (is_sync, channel) = {
        let state = id.state();
        (state.is_sync, Arc::clone(&state.channel))
    };
    if is_sync {
        sync::forget_event(&id);
    } else {
        forget_unread(&id, &channel);
    }
    id.outstanding.wait();
    Ok(())
}

/// Removes the unread events of a destroyed id from its channel. Connection requests among them are refused.
fn forget_unread(id: &IdObject, channel: &ChannelObject) {
    for event in unread::take_out(channel, id.number) {
        if event.id != id.number {
            let _ = id.manager.client.destroy(event.id);
        }
    }
}

/// Destroys an id.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_destroy_id(id: *mut RdmaCmId) -> c_int {
    errno::minus_one(destroy(id))
}
