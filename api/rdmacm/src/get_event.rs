//! Waiting for events.
//!
//! A thread may be cancelled in a program's wait, which unwinds the stack. That function must therefore hold
//! nothing that needs a drop, and must call only functions that cannot unwind: functions with C's ABI that
//! are not inlined.

use remora_abi::cma::{RdmaCmEvent, RdmaEventChannel};
use remora_broker::IdEvent;
use rustix::net::RecvFlags;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::channel::{self, ChannelObject};
use crate::{errno, received};

/// The state of a wait for an event.
#[repr(C)]
enum Step {
    /// An event was delivered to the program.
    Done,
    /// The event belonged to no id, so the wait continues.
    Again,
    /// The wait failed; the errno is set.
    Failed,
    /// Another thread has destroyed the channel since the wait began.
    Destroyed,
}

/// Returns the channel's descriptor, or -1 with the errno set.
#[inline(never)]
unsafe extern "C" fn begin(channel: *mut RdmaEventChannel, event: *mut *mut RdmaCmEvent) -> c_int {
    match channel::look(channel) {
        Ok(object) if !event.is_null() => object.descriptor(),
        _ => errno::minus_one(Err(libc::EINVAL)),
    }
}

/// Ends a wait that has read `len` bytes.
#[inline(never)]
unsafe extern "C" fn end(
    channel: *mut RdmaEventChannel,
    packet: *const u8,
    len: isize,
    event: *mut *mut RdmaCmEvent,
) -> Step {
    let Ok(object) = channel::look(channel) else { return Step::Destroyed };
    let Ok(len) = usize::try_from(len) else { return Step::Failed };
    // SAFETY: `len` bytes were read there.
    let packet = unsafe { std::slice::from_raw_parts(packet, len) };
    match take(&object, packet) {
        Ok(Some(received)) => {
            // SAFETY: the program's variable.
            unsafe { *event = received };
            Step::Done
        }
        Ok(None) => Step::Again,
        Err(errno) => {
            errno::set(errno);
            Step::Failed
        }
    }
}

/// Returns the event in a packet, or `None` if it belongs to no id.
fn take(channel: &Arc<ChannelObject>, packet: &[u8]) -> Result<Option<*mut RdmaCmEvent>, c_int> {
    if packet.is_empty() {
        // An empty packet means that the broker is gone.
        return received::bereft(channel).map(Some).ok_or(libc::ENODEV);
    }
    let event = IdEvent::parse(packet).ok_or(libc::EIO)?;
    Ok(received::hand_out(channel, event))
}

/// Waits for an event of a channel inside another call.
pub(crate) fn wait(channel: &Arc<ChannelObject>) -> Result<*mut RdmaCmEvent, c_int> {
    let mut packet = [0u8; IdEvent::MAX_LEN];
    loop {
        let read = rustix::net::recv(&channel.socket, &mut packet[..], RecvFlags::empty());
        let (len, _) = read.map_err(|errno| errno.raw_os_error())?;
        if let Some(event) = take(channel, &packet[..len])? {
            return Ok(event);
        }
    }
}

/// Waits for an event. If another thread destroys the channel meanwhile, the wait does not end, so that a
/// program that ends so does not fail. Obeys `O_NONBLOCK` on the channel's descriptor, and returns on a
/// signal.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut RdmaEventChannel,
    event: *mut *mut RdmaCmEvent,
) -> c_int {
    loop {
        let mut packet = [0u8; IdEvent::MAX_LEN];
        // SAFETY: the program's pointers are passed on, and the buffer has `MAX_LEN` bytes.
        unsafe {
            let descriptor = begin(channel, event);
            if descriptor < 0 {
                return -1;
            }
            let place = packet.as_mut_ptr();
            let len = libc::recv(descriptor, place.cast::<c_void>(), IdEvent::MAX_LEN, 0);
            match end(channel, place, len, event) {
                Step::Done => return 0,
                Step::Again => {}
                Step::Failed => return -1,
                // As in the kernel, where a wait keeps the channel open: only a signal ends it.
                Step::Destroyed => return libc::pause(),
            }
        }
    }
}
