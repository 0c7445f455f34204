//! Moving ids to another channel.

use remora_abi::cma::{RdmaCmId, RdmaEventChannel};
use std::ffi::c_int;
use std::sync::Arc;

use crate::channel::{self, ChannelObject};
use crate::{errno, id, sync, unread};

/// Moves an id to another channel, or to a hidden one for NULL. Its unread events move with it, and later
/// events arrive in the new channel. Returns when all events that the program has read are acknowledged.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_migrate_id(id: *mut RdmaCmId, channel: *mut RdmaEventChannel) -> c_int {
    errno::minus_one((|| {
        let id = id::look(id)?;
        let is_sync = channel.is_null();
        let target = if is_sync { ChannelObject::open()? } else { channel::look(channel)? };
        if !Arc::ptr_eq(&target.manager, &id.manager) {
            return Err(libc::EINVAL);
        }
        id.manager.client.migrate(id.number, &target.socket).map_err(|error| errno::of_io(&error))?;
        let (was_sync, source) = {
            let mut state = id.state();
            id.show(|id| id.channel = target.handle());
            let was_sync = std::mem::replace(&mut state.is_sync, is_sync);
            (was_sync, std::mem::replace(&mut state.channel, Arc::clone(&target)))
        };
        if !Arc::ptr_eq(&source, &target) {
            unread::append(&target, unread::take_out(&source, id.number));
        }
        if was_sync {
            sync::forget_event(&id);
        }
        id.outstanding.wait();
        Ok(())
    })())
}
