//! Events of completion channels.

use remora_abi::objects::{IbvCompChannel, IbvCq};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

use crate::channel::{ChannelObject, Step, read_one};
use crate::cq::CqObject;
use crate::{context, errno, handles};

/// Descriptors of the port that a wait looks at: its socket, those of multicast groups, the channel of a
/// shared address, and the one that shows all links.
const MAX_SOCKETS: usize = 67;

/// What a thread waits for: the channel's descriptor, and packets that it serves itself. So it is woken once,
/// and not by another thread that was woken before.
#[repr(C)]
struct Wait {
    polled: [libc::pollfd; 1 + MAX_SOCKETS],
    count: libc::nfds_t,
    timeout: c_int,
    /// This thread is the one that waits for packets.
    awaits: bool,
    /// An event is there: nothing to wait for.
    ready: bool,
}

/// A wait for nothing yet.
const NO_WAIT: Wait =
    Wait { polled: [NOTHING; 1 + MAX_SOCKETS], count: 0, timeout: 0, awaits: false, ready: false };

const NOTHING: libc::pollfd = libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 };

/// Begins a wait: fills it in. False: the errno says why not.
#[inline(never)]
unsafe extern "C" fn begin(channel: *mut IbvCompChannel, wait: &mut Wait) -> bool {
    let found = handles::look::<ChannelObject>(channel).and_then(|object| {
        // SAFETY: programs read it at most.
        let verbs = unsafe { *object.verbs.get() };
        context::look(verbs.context).map(|view| (object, verbs.fd, view))
    });
    let Ok((object, descriptor, view)) = found else {
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

/// Is a read the next step: because it has something, or because the program wants no wait?
#[inline(never)]
unsafe extern "C" fn is_due(wait: &Wait) -> bool {
    // SAFETY: asks for the flags of a descriptor.
    let flags = || unsafe { libc::fcntl(wait.polled[0].fd, libc::F_GETFL) };
    wait.ready || wait.polled[0].revents != 0 || flags() & libc::O_NONBLOCK != 0
}

/// Another thread may wait for packets.
fn give_up(object: &ChannelObject, wait: &Wait) {
    // SAFETY: programs read it at most.
    let context = unsafe { (*object.verbs.get()).context };
    if let (true, Ok(view)) = (wait.awaits, context::look(context)) {
        let woken = wait.polled[..wait.count as usize].iter().any(|polled| polled.revents != 0);
        view.nic.end_waiting(woken);
    }
}

/// Ends a wait whose read has succeeded or not.
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

/// Ends a wait in which packets came: the thread serves them, and waits again.
#[inline(never)]
unsafe extern "C" fn leave(channel: *mut IbvCompChannel, wait: &Wait) -> Step {
    let Ok(object) = handles::look::<ChannelObject>(channel) else { return Step::Failed };
    give_up(object, wait);
    object.reports.end_read(false);
    Step::Again
}

/// Waits for a queue that got a completion. Obeys the descriptor's `O_NONBLOCK`, and returns on a signal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut IbvCompChannel,
    cq: *mut *mut IbvCq,
    cq_context: *mut *mut c_void,
) -> c_int {
    loop {
        let mut wait = NO_WAIT;
        // SAFETY: what the program gave. As for `read_one`, a thread may be cancelled in poll(2).
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

/// Acknowledges reports: a queue can end when all of its are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut IbvCq, count: c_uint) {
    if let Ok(object) = handles::look::<CqObject>(cq) {
        object.completions_acknowledged().add(count);
    }
}
