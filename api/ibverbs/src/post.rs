//! Posting to the queues of a queue pair.

use remora_verbs::Payload;
use std::ffi::c_int;

use crate::abi::queue_pair::IbvQp;
use crate::abi::work::{IbvRecvWr, IbvSendWr};
use crate::errno;
use crate::handles;
use crate::qp::QpObject;
use crate::requests::{self, Work};

/// Posts a list of send work requests. `bad` gets the first that was not taken; those before it are.
pub unsafe extern "C" fn post_send(qp: *mut IbvQp, wr: *mut IbvSendWr, bad: *mut *mut IbvSendWr) -> c_int {
    let mut at = wr;
    // SAFETY: NULL, or a live handle; the requests are the program's.
    let posted = unsafe { handles::fast::<QpObject>(qp) }.map(|object| {
        let service = object.raw.service();
        object.raw.post_send(|queue| {
            // SAFETY: as above.
            while let Some(request) = unsafe { at.as_ref() } {
                unsafe { requests::push(queue, service, request)? };
                at = request.next;
            }
            Ok(())
        })
    });
    let errno = match posted {
        Some(Ok(Ok(()))) => return 0,
        Some(Ok(Err(errno))) => errno,
        Some(Err(error)) => errno::of_post(error),
        None => libc::EINVAL,
    };
    // SAFETY: the program's.
    unsafe { tell(bad, at) };
    errno
}

/// Posts a list of receive work requests, likewise.
pub unsafe extern "C" fn post_recv(qp: *mut IbvQp, wr: *mut IbvRecvWr, bad: *mut *mut IbvRecvWr) -> c_int {
    let mut at = wr;
    // SAFETY: as for sends.
    let posted = unsafe { handles::fast::<QpObject>(qp) }.map(|object| {
        object.raw.post_recv(|queue| {
            // SAFETY: as above.
            while let Some(request) = unsafe { at.as_ref() } {
                unsafe { requests::receive(request, |request| queue.push(request))? };
                at = request.next;
            }
            Ok(())
        })
    });
    let errno = match posted {
        Some(Ok(Ok(()))) => return 0,
        Some(Ok(Err(errno))) => errno,
        Some(Err(error)) => errno::of_post(error),
        None => libc::EINVAL,
    };
    // SAFETY: the program's.
    unsafe { tell(bad, at) };
    errno
}

/// Tells the program which request was not taken.
///
/// # Safety
/// `bad` is NULL or the program's.
pub unsafe fn tell<T>(bad: *mut *mut T, which: *mut T) {
    if !bad.is_null() {
        // SAFETY: the caller's promise.
        unsafe { *bad = which };
    }
}

/// Posts one work request without bytes.
pub fn post_one(qp: *mut IbvQp, work: &Work) -> Result<(), c_int> {
    let object = handles::look::<QpObject>(qp)?;
    let posted = object.raw.post_send(|queue| queue.push(&work.with(Payload::Sges(&[])), &work.target));
    posted.map_err(errno::of_post)?.map_err(errno::of_queue)
}
