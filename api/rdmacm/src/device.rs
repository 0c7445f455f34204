//! The list of devices.

use remora_abi::objects::IbvContext;
use std::ffi::c_int;

use crate::{cm_device, errno};

/// Returns a list of the open devices, which ends with NULL. It has one device, which stays open.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut IbvContext {
    errno::pointer(cm_device::shared().map(|manager| {
        // SAFETY: NULL, or the program's variable.
        if let Some(count) = unsafe { count.as_mut() } {
            *count = 1;
        }
        Box::into_raw(Box::new([manager.context, std::ptr::null_mut()])).cast()
    }))
}

/// Frees a list of devices.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_free_devices(list: *mut *mut IbvContext) {
    if !list.is_null() {
        // SAFETY: a list returned by `rdma_get_devices` has two entries.
        drop(unsafe { Box::from_raw(list.cast::<[*mut IbvContext; 2]>()) });
    }
}
