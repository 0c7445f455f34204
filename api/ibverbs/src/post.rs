//! Posting to queue pairs and to shared receive queues.

use remora_abi::objects::{IbvQp, IbvRecvWr, IbvSendWr, IbvSrq};
use remora_verbs::raw::ReceiveQueue;
use remora_verbs::{Payload, PostError};
use std::ffi::c_int;

use crate::faults::FaultyQp;
use crate::qp::QpObject;
use crate::requests::{self, Work};
use crate::srq::SrqObject;
use crate::{errno, faults, handles};

/// Returns 0, or the errno of a list, of which `bad` receives the first request that was refused.
///
/// # Safety
/// `bad` is NULL or the program's.
#[inline]
unsafe fn concluded<T>(
    posted: Option<Result<Result<(), c_int>, PostError>>,
    next: *mut T,
    bad: *mut *mut T,
) -> c_int {
    let errno = match posted {
        Some(Ok(Ok(()))) => return 0,
        Some(Ok(Err(errno))) => errno,
        Some(Err(error)) => errno::of_post(error),
        None => libc::EINVAL,
    };
    if !bad.is_null() {
        // SAFETY: the caller's promise.
        unsafe { *bad = next };
    }
    errno
}

/// Posts a list of send work requests. `bad` receives the first request that was refused; those before it
/// are posted.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut IbvQp,
    wr: *mut IbvSendWr,
    bad: *mut *mut IbvSendWr,
) -> c_int {
    let mut next = wr;
    // SAFETY: NULL, or a live handle.
    let posted = unsafe { handles::fast::<QpObject>(qp) }.map(|object| {
        let service = object.raw.service();
        object.raw.post_send(|queue| {
            // SAFETY: the requests are the program's, and the last one has no successor.
            while let Some(request) = unsafe { next.as_ref() } {
                if let Some(faults) = &object.faults {
                    faults.post(requests::kind(request))?;
                }
                // SAFETY: as above.
                unsafe { requests::push(queue, service, request)? };
                next = request.next;
            }
            Ok(())
        })
    });
    // SAFETY: NULL, or the program's.
    unsafe { concluded(posted, next, bad) }
}

/// Posts the receive work requests of a list up to the first that is refused.
///
/// # Safety
/// The requests are the program's, and the last one has no successor.
#[inline]
unsafe fn receive_all(
    queue: &mut ReceiveQueue,
    next: &mut *mut IbvRecvWr,
    faults: Option<&FaultyQp>,
) -> Result<(), c_int> {
    // SAFETY: the caller's promise.
    while let Some(request) = unsafe { next.as_ref() } {
        if let Some(faults) = faults {
            faults.post(remora_verbs::faults::WorkKind::Receive)?;
        }
        // SAFETY: as above.
        unsafe { requests::receive(request, |request| queue.push(request))? };
        *next = request.next;
    }
    Ok(())
}

/// Posts a list of receive work requests. `bad` receives the first request that was refused.
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut IbvQp,
    wr: *mut IbvRecvWr,
    bad: *mut *mut IbvRecvWr,
) -> c_int {
    let mut next = wr;
    // SAFETY: NULL, or a live handle; the requests are the program's.
    unsafe {
        let posted = handles::fast::<QpObject>(qp).map(|object| {
            object.raw.post_recv(|queue| receive_all(queue, &mut next, object.faults.as_deref()))
        });
        concluded(posted, next, bad)
    }
}

/// Posts a list of receive work requests to a shared receive queue. `bad` receives the first request that
/// was refused.
pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut IbvSrq,
    wr: *mut IbvRecvWr,
    bad: *mut *mut IbvRecvWr,
) -> c_int {
    let mut next = wr;
    // SAFETY: as in `post_recv`.
    unsafe {
        let posted = handles::fast::<SrqObject>(srq)
            .map(|object| object.raw.post_recv(|queue| receive_all(queue, &mut next, None)));
        concluded(posted, next, bad)
    }
}

/// Posts one work request without data.
pub(crate) fn post_one(qp: *mut IbvQp, work: &Work) -> Result<(), c_int> {
    let object = handles::look::<QpObject>(qp)?;
    if let Some(faults) = &object.faults {
        faults.post(faults::work(&work.operation))?;
    }
    let posted = object.raw.post_send(|queue| queue.push_to(&work.with(Payload::Sges(&[])), &work.target));
    posted.map_err(errno::of_post)?.map_err(errno::of_queue)
}
