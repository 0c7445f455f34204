//! Completion channels: descriptors that programs wait on.

use remora_abi::objects::{IbvCompChannel, IbvContext};
use remora_verbs::raw::EventQueue;
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::handles::{self, Kind, Object};
use crate::{context, errno};

/// Reports of one channel that wait to be read: more than there are queues that can each have a few.
const MAX_REPORTS: usize = 1 << 16;

/// A channel.
#[repr(C)]
pub struct ChannelObject {
    pub verbs: UnsafeCell<IbvCompChannel>,
    pub reports: Arc<EventQueue<u64>>,
    /// Queues that report here.
    pub users: AtomicU32,
}

impl Object for ChannelObject {
    type C = IbvCompChannel;
    const KIND: Kind = Kind::Channel;
}

impl ChannelObject {
    /// One queue more, or one less, reports here.
    pub fn count(&self, more: bool) {
        let before = if more {
            self.users.fetch_add(1, Ordering::AcqRel) + 1
        } else {
            self.users.fetch_sub(1, Ordering::AcqRel) - 1
        };
        // SAFETY: programs read it at most.
        unsafe { (*self.verbs.get()).refcnt = before as c_int };
    }
}

/// Makes a channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_comp_channel(context: *mut IbvContext) -> *mut IbvCompChannel {
    errno::pointer((|| {
        context::look(context)?;
        let reports =
            EventQueue::new(MAX_REPORTS).map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
        let verbs = IbvCompChannel { context, fd: reports.as_fd().as_raw_fd(), refcnt: 0 };
        let object =
            ChannelObject { verbs: verbs.into(), reports: Arc::new(reports), users: AtomicU32::new(0) };
        Ok(handles::give(Box::new(object)))
    })())
}

/// Ends a channel; EBUSY while a queue reports there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut IbvCompChannel) -> c_int {
    errno::number((|| {
        if handles::look::<ChannelObject>(channel)?.users.load(Ordering::Acquire) > 0 {
            return Err(libc::EBUSY);
        }
        handles::take::<ChannelObject>(channel).map(drop)
    })())
}

/// Where a wait for an event stands.
#[repr(C)]
pub enum Step {
    /// There is an event, and the program has it.
    Done,
    /// The event was withdrawn: the wait goes on.
    Again,
    /// The errno says why not.
    Failed,
}

/// Reads one event's 8 bytes of a descriptor. False: the errno says why not.
///
/// A thread may be cancelled in it, which unwinds the stack. So its callers keep nothing that a drop would
/// end, and call nothing that Rust lets unwind: functions of C's ABI that are not inlined. Such a frame has
/// no table of what to run, and the unwinder passes it, whether panics unwind or abort.
#[inline(always)]
pub unsafe fn read_one(descriptor: c_int) -> bool {
    let mut word = 0u64;
    // SAFETY: the word has 8 bytes.
    unsafe { libc::read(descriptor, (&raw mut word).cast(), 8) == 8 }
}
