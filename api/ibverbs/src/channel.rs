//! Completion channels: descriptors that programs wait for.

use remora_abi::objects::{IbvCompChannel, IbvContext};
use remora_verbs::raw::EventQueue;
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::handles::{self, Kind, Object};
use crate::{context, errno};

/// Maximum number of unread reports of one channel. It exceeds the number of completion queues, each of
/// which can have a few.
const MAX_REPORTS: usize = 1 << 16;

/// A completion channel.
#[repr(C)]
pub(crate) struct ChannelObject {
    pub verbs: UnsafeCell<IbvCompChannel>,
    pub reports: Arc<EventQueue<u64>>,
    /// The number of completion queues that report to the channel.
    pub users: AtomicU32,
}

impl Object for ChannelObject {
    type C = IbvCompChannel;
    const KIND: Kind = Kind::Channel;
}

impl ChannelObject {
    /// Counts one more, or one less, completion queue that reports to the channel.
    pub(crate) fn count(&self, more: bool) {
        let before = if more {
            self.users.fetch_add(1, Ordering::AcqRel) + 1
        } else {
            self.users.fetch_sub(1, Ordering::AcqRel) - 1
        };
        // SAFETY: programs only read the field.
        unsafe { (*self.verbs.get()).refcnt = before as c_int };
    }
}

/// Creates a completion channel.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_comp_channel(context: *mut IbvContext) -> *mut IbvCompChannel {
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

/// Destroys a completion channel. EBUSY while a completion queue reports to it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut IbvCompChannel) -> c_int {
    errno::number((|| {
        if handles::look::<ChannelObject>(channel)?.users.load(Ordering::Acquire) > 0 {
            return Err(libc::EBUSY);
        }
        handles::take::<ChannelObject>(channel).map(drop)
    })())
}

/// The state of a wait for an event.
#[repr(C)]
pub(crate) enum Step {
    /// An event was delivered to the program.
    Done,
    /// The event was withdrawn, so the wait continues.
    Again,
    /// The wait failed; the errno is set.
    Failed,
}

/// Reads one event's 8 bytes from a descriptor. Returns false with the errno set if that fails.
///
/// The calling thread may be cancelled in this function, which unwinds the stack. Its callers must therefore
/// hold nothing that needs a drop, and must call only functions that cannot unwind: functions with C's ABI
/// that are not inlined. The frame of such a caller has no cleanup to run, and the unwinder passes it,
/// whether panics unwind or abort.
#[inline(always)]
pub(crate) unsafe fn read_one(descriptor: c_int) -> bool {
    let mut word = 0u64;
    // SAFETY: the word has 8 bytes.
    unsafe { libc::read(descriptor, (&raw mut word).cast(), 8) == 8 }
}
