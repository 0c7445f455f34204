//! Ids without a channel of the program's: each call waits for its event, which stands in the id then.

use remora_abi::cma::event_type;
use std::ffi::c_int;

use crate::event::{self, EVENTS};
use crate::get_event;
use crate::id::IdObject;

/// Ends what the id's last call has told.
pub fn forget_event(id: &IdObject) {
    let received = id.shown().event;
    if !received.is_null() {
        // Who has acknowledged it itself has done no harm.
        let _ = event::acknowledge(received);
        id.show(|id| id.event = std::ptr::null_mut());
    }
}

/// Waits for the event of a call, if the id has a hidden channel. The errno says how it ended.
pub fn complete(id: &IdObject) -> Result<(), c_int> {
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
