//! Functions for asynchronous events.

use remora_abi::context::IbvAsyncEvent;
use remora_abi::objects::{IbvContext, IbvCq, IbvQp, IbvSrq};
use std::ffi::c_int;
use std::sync::atomic::Ordering;

use crate::channel::{Step, read_one};
use crate::cq::CqObject;
use crate::handles;
use crate::qp::QpObject;
use crate::srq::SrqObject;
use crate::{context, errno};

/// Begins a wait. Returns the context's descriptor, or -1 with the errno set.
#[inline(never)]
unsafe extern "C" fn begin(context: *mut IbvContext) -> c_int {
    let Ok(object) = context::look(context) else {
        errno::set(libc::EINVAL);
        return -1;
    };
    let _ = object.events.begin_read();
    object.verbs.context.async_fd
}

/// Ends a wait after its read. `succeeded`: the read has returned an event.
#[inline(never)]
unsafe extern "C" fn end(context: *mut IbvContext, succeeded: bool, out: *mut IbvAsyncEvent) -> Step {
    let Ok(object) = context::look(context) else { return Step::Failed };
    let event = object.events.end_read(succeeded);
    if !succeeded {
        return Step::Failed;
    }
    let Some(event) = event else { return Step::Again };
    event.delivered.fetch_add(1, Ordering::AcqRel);
    // SAFETY: the program's structure.
    unsafe { out.write(IbvAsyncEvent { element: event.element, event_type: event.event_type }) };
    Step::Done
}

/// Waits for an event. Obeys `O_NONBLOCK` on the context's descriptor, and returns on a signal.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_async_event(
    context: *mut IbvContext,
    out: *mut IbvAsyncEvent,
) -> c_int {
    loop {
        // SAFETY: the program's pointers are passed on.
        unsafe {
            let descriptor = begin(context);
            if descriptor < 0 {
                return -1;
            }
            let succeeded = read_one(descriptor);
            match end(context, succeeded, out) {
                Step::Done => return 0,
                Step::Again => {}
                Step::Failed => return -1,
            }
        }
    }
}

/// Acknowledges an event. An object can be destroyed once all of its events are acknowledged.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_ack_async_event(event: *mut IbvAsyncEvent) {
    // SAFETY: NULL, or the program's event.
    let Some(event) = (unsafe { event.as_ref() }) else { return };
    let element = event.element as usize;
    match event.event_type {
        0 => {
            if let Ok(cq) = handles::look::<CqObject>(element as *mut IbvCq) {
                cq.events_acknowledged().add(1);
            }
        }
        1..=7 | 16 => {
            if let Ok(qp) = handles::look::<QpObject>(element as *mut IbvQp) {
                qp.events_acknowledged().add(1);
            }
        }
        14 | 15 => {
            if let Ok(srq) = handles::look::<SrqObject>(element as *mut IbvSrq) {
                srq.events_acknowledged().add(1);
            }
        }
        // An event of the port or the device: no destroy waits for it.
        _ => {}
    }
}
