//! Waits for events.
//!
//! A thread may be cancelled in the wait of a program, which unwinds the stack. So that wait keeps nothing
//! that a drop would end, and calls nothing that Rust lets unwind: functions of C's ABI that are not inlined.

use remora_abi::cma::{RdmaCmEvent, RdmaEventChannel};
use remora_broker::IdEvent;
use rustix::net::RecvFlags;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::channel::{self, ChannelObject};
use crate::{errno, received};

/// Where a wait for an event stands.
#[repr(C)]
enum Step {
    /// There is an event, and the program has it.
    Done,
    /// The event was nobody's: the wait goes on.
    Again,
    /// The errno says why not.
    Failed,
}

/// The channel's descriptor; -1: the errno says why not.
#[inline(never)]
unsafe extern "C" fn begin(channel: *mut RdmaEventChannel, event: *mut *mut RdmaCmEvent) -> c_int {
    match channel::look(channel) {
        Ok(object) if !event.is_null() => object.descriptor(),
        _ => errno::minus_one(Err(libc::EINVAL)),
    }
}

/// Ends a wait that has read so many bytes.
#[inline(never)]
unsafe extern "C" fn end(
    channel: *mut RdmaEventChannel,
    packet: *const u8,
    len: isize,
    event: *mut *mut RdmaCmEvent,
) -> Step {
    let Ok(len) = usize::try_from(len) else { return Step::Failed };
    // SAFETY: so many bytes have been read there.
    let packet = unsafe { std::slice::from_raw_parts(packet, len) };
    match channel::look(channel).and_then(|object| take(&object, packet)) {
        Ok(Some(received)) => {
            // SAFETY: the program's place.
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

/// The event in a packet, if it is still somebody's.
fn take(channel: &Arc<ChannelObject>, packet: &[u8]) -> Result<Option<*mut RdmaCmEvent>, c_int> {
    if packet.is_empty() {
        // The broker is gone.
        return received::bereft(channel).map(Some).ok_or(libc::ENODEV);
    }
    let event = IdEvent::parse(packet).ok_or(libc::EIO)?;
    Ok(received::hand_out(channel, event))
}

/// Waits for an event of a channel in a call that is not one for events.
pub fn wait(channel: &Arc<ChannelObject>) -> Result<*mut RdmaCmEvent, c_int> {
    let mut packet = [0u8; IdEvent::MAX_LEN];
    loop {
        let read = rustix::net::recv(&channel.socket, &mut packet[..], RecvFlags::empty());
        let (len, _) = read.map_err(|errno| errno.raw_os_error())?;
        if let Some(event) = take(channel, &packet[..len])? {
            return Ok(event);
        }
    }
}

/// Waits for an event. Obeys the descriptor's `O_NONBLOCK`, and returns on a signal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut RdmaEventChannel,
    event: *mut *mut RdmaCmEvent,
) -> c_int {
    loop {
        let mut packet = [0u8; IdEvent::MAX_LEN];
        // SAFETY: what the program gave, and a buffer of so many bytes.
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
            }
        }
    }
}
