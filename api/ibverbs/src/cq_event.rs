//! Events of completion channels.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

use crate::abi::objects::{IbvCompChannel, IbvCq};
use crate::channel::{ChannelObject, Step, read_one};
use crate::cq::CqObject;
use crate::{errno, handles};

/// Begins a wait: the channel's descriptor, or -1 with the errno set.
#[inline(never)]
unsafe extern "C" fn begin(channel: *mut IbvCompChannel) -> c_int {
    let Ok(object) = handles::look::<ChannelObject>(channel) else {
        errno::set(libc::EINVAL);
        return -1;
    };
    object.reports.begin_read();
    // SAFETY: programs read it at most.
    unsafe { (*object.verbs.get()).fd }
}

/// Ends a wait whose read has succeeded or not.
#[inline(never)]
unsafe extern "C" fn end(
    channel: *mut IbvCompChannel,
    succeeded: bool,
    cq: *mut *mut IbvCq,
    cq_context: *mut *mut c_void,
) -> Step {
    let Ok(object) = handles::look::<ChannelObject>(channel) else { return Step::Failed };
    let report = object.reports.end_read(succeeded);
    if !succeeded {
        return Step::Failed;
    }
    let Some(found) = report.map(|address| address as *mut IbvCq) else { return Step::Again };
    // SAFETY: a queue that has ended withdraws its reports first. The places are the program's.
    unsafe {
        let Some(queue) = handles::fast::<CqObject>(found) else { return Step::Again };
        queue.delivered.fetch_add(1, Ordering::AcqRel);
        *cq = found;
        *cq_context = (*queue.verbs.get()).cq_context;
    }
    Step::Done
}

/// Waits for a queue that got a completion. Obeys the descriptor's `O_NONBLOCK`, and returns on a signal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut IbvCompChannel,
    cq: *mut *mut IbvCq,
    cq_context: *mut *mut c_void,
) -> c_int {
    loop {
        // SAFETY: what the program gave.
        unsafe {
            let descriptor = begin(channel);
            if descriptor < 0 {
                return -1;
            }
            let succeeded = read_one(descriptor);
            match end(channel, succeeded, cq, cq_context) {
                Step::Done => return 0,
                Step::Again => {}
                Step::Failed => return -1,
            }
        }
    }
}

/// Acknowledges reports: a queue can end when all of its are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut IbvCq, count: c_uint) {
    if let Ok(object) = handles::look::<CqObject>(cq) {
        object.completions_acknowledged().add(count);
    }
}
