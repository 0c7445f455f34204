//! Events of this library's own: the broker sends them back by the id's channel, and so they come in turn.

use remora_broker::Posted;
use std::ffi::c_int;

use crate::errno;
use crate::id::IdObject;

/// Puts an event of this library's own into the id's channel.
pub fn post(id: &IdObject, event: c_int, status: c_int, subject: u64) -> Result<(), c_int> {
    let posted = Posted { code: event as u32, status, subject };
    id.manager.client.post(id.number, posted).map_err(|error| errno::of_io(&error))
}
