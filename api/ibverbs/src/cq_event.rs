//! Events of completion channels.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

use crate::abi::objects::{IbvCompChannel, IbvCq};
use crate::channel::{ChannelObject, read_one};
use crate::cq::CqObject;
use crate::{errno, handles};

/// Waits for a queue that got a completion. Obeys the descriptor's `O_NONBLOCK`, and returns on a signal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut IbvCompChannel,
    cq: *mut *mut IbvCq,
    cq_context: *mut *mut c_void,
) -> c_int {
    let Ok(object) = handles::look::<ChannelObject>(channel) else {
        errno::set(libc::EINVAL);
        return -1;
    };
    loop {
        object.reports.begin_read();
        // SAFETY: the channel's descriptor.
        let succeeded = unsafe { read_one((*object.verbs.get()).fd) };
        let report = object.reports.end_read(succeeded);
        if !succeeded {
            return -1;
        }
        let Some(address) = report else { continue };
        let found = address as *mut IbvCq;
        // SAFETY: a queue that has ended withdraws its reports first. The places are the program's.
        unsafe {
            let Some(queue) = handles::fast::<CqObject>(found) else { continue };
            queue.delivered.fetch_add(1, Ordering::AcqRel);
            *cq = found;
            *cq_context = (*queue.verbs.get()).cq_context;
        }
        return 0;
    }
}

/// Acknowledges reports: a queue can end when all of its are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut IbvCq, count: c_uint) {
    if let Ok(object) = handles::look::<CqObject>(cq) {
        object.completions_acknowledged().add(count);
    }
}
