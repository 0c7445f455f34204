//! The end of an id.

use remora_abi::cma::RdmaCmId;
use std::ffi::c_int;
use std::sync::Arc;

use crate::channel::ChannelObject;
use crate::id::{IDS, IdObject};
use crate::{errno, multicast, registry, sync, unread};

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

/// Takes the unread events of an id that has ended out of its channel. Peers whose requests are among them
/// are refused.
fn forget_unread(id: &IdObject, channel: &ChannelObject) {
    for event in unread::take_out(channel, id.number) {
        if event.id != id.number {
            let _ = id.manager.client.destroy(event.id);
        }
    }
}

/// Ends an id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_id(id: *mut RdmaCmId) -> c_int {
    errno::minus_one(destroy(id))
}
