//! Event channels, whose descriptors are sockets to the broker.

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

/// An event channel.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct ChannelObject {
    verbs: UnsafeCell<RdmaEventChannel>,
    pub manager: Arc<CmDevice>,
    pub socket: EventChannel,
    /// Events that come before those in the socket. They were read when an id ended or moved (`unread.rs`); a
    /// posted event in the socket stands for each of them.
    moved: Mutex<VecDeque<IdEvent>>,
}

// SAFETY: the part that programs see is a descriptor, which never changes.
unsafe impl Send for ChannelObject {}
// SAFETY: as above.
unsafe impl Sync for ChannelObject {}

/// The channels that programs have created.
pub(crate) static CHANNELS: Live<ChannelObject> = Live::new();

impl ChannelObject {
    /// Creates a channel.
    pub(crate) fn open() -> Result<Arc<ChannelObject>, c_int> {
        let manager = cm_device::shared()?;
        let socket = manager.client.create_channel().map_err(|error| errno::of_io(&error))?;
        let verbs = RdmaEventChannel { fd: socket.as_fd().as_raw_fd() }.into();
        Ok(Arc::new(ChannelObject { verbs, manager, socket, moved: Mutex::default() }))
    }

    /// The address by which programs refer to the channel.
    pub(crate) fn handle(&self) -> *mut RdmaEventChannel {
        self.verbs.get()
    }

    /// The channel's descriptor.
    pub(crate) fn descriptor(&self) -> c_int {
        self.socket.as_fd().as_raw_fd()
    }

    /// The events for which a posted event in the socket stands.
    pub(crate) fn moved(&self) -> MutexGuard<'_, VecDeque<IdEvent>> {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a channel of the program. EINVAL for a channel inherited from a parent process.
pub(crate) fn look(channel: *const RdmaEventChannel) -> Result<Arc<ChannelObject>, c_int> {
    let object = CHANNELS.look(channel)?;
    if object.manager.is_foreign() { Err(libc::EINVAL) } else { Ok(object) }
}

/// Creates a channel.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_create_event_channel() -> *mut RdmaEventChannel {
    errno::pointer(ChannelObject::open().map(|object| CHANNELS.give(object) as *mut RdmaEventChannel))
}

/// Destroys a channel, whose ids were destroyed before.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut RdmaEventChannel) {
    let _ = CHANNELS.take(channel);
}
