//! Open devices, which are views of the process's NIC.

use remora_abi::context::VerbsContext;
use remora_abi::objects::IbvContext;
use remora_verbs::raw::EventQueue;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use crate::handles::{self, Kind, Object};
use crate::nic::{Event, Nic, Subject, Watcher};

/// An open device.
#[repr(C)]
pub(crate) struct ContextObject {
    pub verbs: VerbsContext,
    pub nic: Arc<Nic>,
    /// Asynchronous events of this context's objects. The queue's descriptor is the context's `async_fd`.
    pub events: Arc<EventQueue<Event>>,
    /// Receives the device's own events.
    pub watcher: Watcher,
    /// A descriptor that identifies the context, for `ibv_import_device`.
    pub command: OwnedFd,
}

impl Object for ContextObject {
    type C = IbvContext;
    const KIND: Kind = Kind::Context;
    const OFFSET: usize =
        std::mem::offset_of!(ContextObject, verbs) + std::mem::offset_of!(VerbsContext, context);
}

impl Drop for ContextObject {
    fn drop(&mut self) {
        self.nic.forget(Subject::Device(self.verbs.context.async_fd), &self.watcher);
    }
}

/// Returns the context of this handle.
pub(crate) fn look<'a>(context: *mut IbvContext) -> Result<&'a ContextObject, c_int> {
    handles::look::<ContextObject>(context)
}

/// Returns whether a descriptor is the context's `command`, or a duplicate of it.
pub(crate) fn is_command(object: &ContextObject, descriptor: c_int) -> bool {
    let inode = |descriptor: c_int| {
        let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the system fills the structure.
        unsafe { (libc::fstat(descriptor, stat.as_mut_ptr()) == 0).then(|| stat.assume_init()) }
            .map(|stat| (stat.st_dev, stat.st_ino))
    };
    inode(descriptor).is_some_and(|identity| inode(object.command.as_raw_fd()) == Some(identity))
}

/// Copies as much of `value` as fits into `capacity` bytes, and zeroes the rest. Older programs have a
/// shorter structure.
pub(crate) fn copy_known<T>(out: *mut T, capacity: usize, value: &T) {
    let count = capacity.min(size_of::<T>());
    // SAFETY: `out` has `capacity` bytes, and `value` is plain memory.
    unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(value).cast::<u8>(), out.cast::<u8>(), count);
        if capacity > count {
            std::ptr::write_bytes(out.cast::<u8>().add(count), 0, capacity - count);
        }
    }
}
