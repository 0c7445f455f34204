//! Event channels: their descriptors are sockets to the broker.

use remora_abi::cma::RdmaEventChannel;
use remora_broker::IdEvent;
use remora_broker::client::EventChannel;
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cm_device::{self, CmDevice};
use crate::errno;
use crate::live::Live;

/// A channel.
#[repr(C)]
#[derive(Debug)]
pub struct ChannelObject {
    verbs: UnsafeCell<RdmaEventChannel>,
    pub manager: Arc<CmDevice>,
    pub socket: EventChannel,
    /// Events that come before those in the socket, and for each a posted event in the socket: those that
    /// were read when an id ended or moved (`unread.rs`).
    moved: Mutex<VecDeque<IdEvent>>,
}

// SAFETY: the part that programs see is a descriptor that nobody changes.
unsafe impl Send for ChannelObject {}
// SAFETY: as above.
unsafe impl Sync for ChannelObject {}

/// The channels that programs have.
pub static CHANNELS: Live<ChannelObject> = Live::new();

impl ChannelObject {
    /// A new channel.
    pub fn open() -> Result<Arc<ChannelObject>, c_int> {
        let manager = cm_device::shared()?;
        let socket = manager.client.create_channel().map_err(|error| errno::of_io(&error))?;
        let verbs = RdmaEventChannel { fd: socket.as_fd().as_raw_fd() }.into();
        Ok(Arc::new(ChannelObject { verbs, manager, socket, moved: Mutex::default() }))
    }

    /// What programs have of it.
    pub fn handle(&self) -> *mut RdmaEventChannel {
        self.verbs.get()
    }

    /// The descriptor.
    pub fn descriptor(&self) -> c_int {
        self.socket.as_fd().as_raw_fd()
    }

    /// Events that wait for a posted event.
    pub fn moved(&self) -> MutexGuard<'_, VecDeque<IdEvent>> {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A channel that the program has; not one that was inherited from a parent.
pub fn look(channel: *const RdmaEventChannel) -> Result<Arc<ChannelObject>, c_int> {
    let object = CHANNELS.look(channel)?;
    if object.manager.is_foreign() { Err(libc::EINVAL) } else { Ok(object) }
}

/// Makes a channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_event_channel() -> *mut RdmaEventChannel {
    errno::pointer(ChannelObject::open().map(|object| CHANNELS.give(object) as *mut RdmaEventChannel))
}

/// Ends a channel, whose ids have ended before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut RdmaEventChannel) {
    let _ = CHANNELS.take(channel);
}
