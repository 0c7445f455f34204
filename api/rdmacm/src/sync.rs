//! Ids without a channel of the program: each call waits for its event, which is then stored in the id.

use remora_abi::cma::event_type;
use std::ffi::c_int;

use crate::event::{self, EVENTS};
use crate::get_event;
use crate::id::IdObject;

/// Acknowledges the event of the id's last call.
pub(crate) fn forget_event(id: &IdObject) {
    let received = id.shown().event;
    if !received.is_null() {
        // Fails if the program has acknowledged the event itself, which is allowed.
        let _ = event::acknowledge(received);
        id.show(|id| id.event = std::ptr::null_mut());
    }
}

/// Waits for the event of a call, if the id has a hidden channel. Returns the errno of the call's result.
pub(crate) fn complete(id: &IdObject) -> Result<(), c_int> {
    let channel = {
        let state = id.state();
        if !state.is_sync {
            return Ok(());
        }
        state.channel.clone()
    };
    forget_event(id);
    let received = get_event::wait(&channel)?;
    id.show(|id| id.event = received);
    let shown = EVENTS.look(received)?.shown();
    match shown.status {
        0 => Ok(()),
        _ if shown.event == event_type::REJECTED => Err(libc::ECONNREFUSED),
        status => Err(status.abs()),
    }
}
