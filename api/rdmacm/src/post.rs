//! Events that this library itself generates. The broker returns them on the id's channel, which keeps the
//! order of events.

use remora_broker::Posted;
use std::ffi::c_int;

use crate::errno;
use crate::id::IdObject;

/// Puts an event of this library into the id's channel.
pub(crate) fn post(id: &IdObject, event: c_int, status: c_int, subject: u64) -> Result<(), c_int> {
    let posted = Posted { code: event as u32, status, subject };
    id.manager.client.post(id.number, posted).map_err(|error| errno::of_io(&error))
}
