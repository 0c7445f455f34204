//! Events of completion channels.

use remora_abi::objects::{IbvCompChannel, IbvCq};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

use crate::channel::{ChannelObject, Step, read_one};
use crate::cq::CqObject;
use crate::{context, errno, handles};

/// The greatest number of the port's descriptors in a wait: its socket, those of multicast groups, the
/// channel of a shared address, and the one that represents all links.
const MAX_SOCKETS: usize = 67;

/// The descriptors that a thread waits for: the channel's, and those of the port if the thread serves
/// packets itself. The thread is then woken once for a packet, and not by another thread that was woken
/// first.
#[repr(C)]
struct Wait {
    polled: [libc::pollfd; 1 + MAX_SOCKETS],
    count: libc::nfds_t,
    timeout: c_int,
    /// True if this thread is the one that waits for packets.
    awaits: bool,
    /// True if an event is ready, so that there is no need to wait.
    ready: bool,
}

/// An empty wait.
const NO_WAIT: Wait =
    Wait { polled: [NOTHING; 1 + MAX_SOCKETS], count: 0, timeout: 0, awaits: false, ready: false };

const NOTHING: libc::pollfd = libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 };

/// Fills in a wait. Returns false with the errno set if the channel is invalid.
#[inline(never)]
unsafe extern "C" fn begin(channel: *mut IbvCompChannel, wait: &mut Wait) -> bool {
    let result = handles::look::<ChannelObject>(channel).and_then(|object| {
        // SAFETY: programs only read the structure.
        let verbs = unsafe { *object.verbs.get() };
        context::look(verbs.context).map(|view| (object, verbs.fd, view))
    });
    let Ok((object, descriptor, view)) = result else {
        errno::set(libc::EINVAL);
        return false;
    };
    wait.polled[0].fd = descriptor;
    (wait.count, wait.timeout) = (1, -1);
    wait.awaits = view.nic.begin_waiting();
    if wait.awaits {
        let mut sockets = [-1; MAX_SOCKETS];
        let ready = view.nic.adapter.await_packets(&mut sockets);
        let count = ready.unwrap_or(0);
        for (polled, socket) in wait.polled[1..].iter_mut().zip(&sockets[..count]) {
            polled.fd = *socket;
        }
        wait.count += count as libc::nfds_t;
        wait.timeout = if ready.is_some() { -1 } else { 0 };
    }
    wait.ready = object.reports.begin_read();
    true
}

/// Returns whether the descriptor is to be read next: an event is ready, or the program does not want to
/// wait.
#[inline(never)]
unsafe extern "C" fn is_due(wait: &Wait) -> bool {
    // SAFETY: queries the flags of a descriptor.
    let flags = || unsafe { libc::fcntl(wait.polled[0].fd, libc::F_GETFL) };
    wait.ready || wait.polled[0].revents != 0 || flags() & libc::O_NONBLOCK != 0
}

/// Lets another thread wait for packets.
fn give_up(object: &ChannelObject, wait: &Wait) {
    // SAFETY: programs only read the structure.
    let context = unsafe { (*object.verbs.get()).context };
    if let (true, Ok(view)) = (wait.awaits, context::look(context)) {
        let woken = wait.polled[..wait.count as usize].iter().any(|polled| polled.revents != 0);
        view.nic.end_waiting(woken);
    }
}

/// Ends a wait after its read. `succeeded`: the read has returned an event.
#[inline(never)]
unsafe extern "C" fn end(
    channel: *mut IbvCompChannel,
    wait: &Wait,
    succeeded: bool,
    cq: *mut *mut IbvCq,
    cq_context: *mut *mut c_void,
) -> Step {
    let Ok(object) = handles::look::<ChannelObject>(channel) else { return Step::Failed };
    give_up(object, wait);
    let report = object.reports.end_read(succeeded);
    if !succeeded {
        return Step::Failed;
    }
    let Some(event_cq) = report.map(|address| address as *mut IbvCq) else { return Step::Again };
    // SAFETY: a queue withdraws its reports before it is destroyed. The output pointers are the program's.
    unsafe {
        let Some(queue) = handles::fast::<CqObject>(event_cq) else { return Step::Again };
        queue.delivered.fetch_add(1, Ordering::AcqRel);
        *cq = event_cq;
        *cq_context = (*queue.verbs.get()).cq_context;
    }
    Step::Done
}

/// Ends a wait in which packets came. The thread has to serve them and to wait once more.
#[inline(never)]
unsafe extern "C" fn leave(channel: *mut IbvCompChannel, wait: &Wait) -> Step {
    let Ok(object) = handles::look::<ChannelObject>(channel) else { return Step::Failed };
    give_up(object, wait);
    object.reports.end_read(false);
    Step::Again
}

/// Waits for a completion event. Obeys `O_NONBLOCK` on the channel's descriptor, and returns on a signal.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut IbvCompChannel,
    cq: *mut *mut IbvCq,
    cq_context: *mut *mut c_void,
) -> c_int {
    loop {
        let mut wait = NO_WAIT;
        // SAFETY: the program's pointers are passed on. As in `read_one`, the thread may be cancelled in
        // poll(2).
        unsafe {
            if !begin(channel, &mut wait) {
                return -1;
            }
            let step = if is_due(&wait) {
                end(channel, &wait, read_one(wait.polled[0].fd), cq, cq_context)
            } else if libc::poll(wait.polled.as_mut_ptr(), wait.count, wait.timeout) < 0 {
                end(channel, &wait, false, cq, cq_context)
            } else if is_due(&wait) {
                end(channel, &wait, read_one(wait.polled[0].fd), cq, cq_context)
            } else {
                leave(channel, &wait)
            };
            match step {
                Step::Done => return 0,
                Step::Again => {}
                Step::Failed => return -1,
            }
        }
    }
}

/// Acknowledges completion events. A queue can be destroyed once all of its events are acknowledged.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_ack_cq_events(cq: *mut IbvCq, count: c_uint) {
    if let Ok(object) = handles::look::<CqObject>(cq) {
        object.completions_acknowledged().add(count);
    }
}
