//! The list of devices, which has one entry: `remora0`.

use remora_abi::device::IbvDevice;
use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

use crate::{attributes, errno};

pub(crate) use remora_broker::paths::node_guid as guid;

/// The node type `IBV_NODE_CA`.
const NODE_CA: c_int = 1;
/// `IBV_TRANSPORT_IB`, which includes RoCE.
const TRANSPORT_IB: c_int = 0;
/// Zeroed bytes after the device: `mlx5dv_is_supported` and similar functions look there for a provider's
/// mark.
const BEHIND: usize = 1024;

#[repr(C)]
struct DeviceObject {
    verbs: IbvDevice,
    behind: [u8; BEHIND],
}

/// The address of the device, which lives as long as the process.
struct Place(*mut IbvDevice);

// SAFETY: the device is not written after its creation.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

/// Returns the device.
pub(crate) fn device() -> *mut IbvDevice {
    static DEVICE: OnceLock<Place> = OnceLock::new();
    DEVICE.get_or_init(|| Place((&raw mut *Box::leak(Box::new(describe()))).cast())).0
}

fn describe() -> DeviceObject {
    DeviceObject {
        verbs: IbvDevice {
            _ops: [std::ptr::null_mut(); 2],
            node_type: NODE_CA,
            transport_type: TRANSPORT_IB,
            name: text(attributes::NAME),
            dev_name: text("uverbs0"),
            dev_path: text("/sys/class/infiniband_verbs/uverbs0"),
            ibdev_path: text("/sys/class/infiniband/remora0"),
        },
        behind: [0; BEHIND],
    }
}

/// Returns a text in a field of `N` characters.
pub(crate) fn text<const N: usize>(words: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (place, byte) in field.iter_mut().zip(words.bytes().take(N - 1)) {
        *place = byte as c_char;
    }
    field
}

/// Returns the list of devices, which ends with NULL. `count` receives its length.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut IbvDevice {
    // SAFETY: allocates plain memory for two pointers.
    let list: *mut *mut IbvDevice = unsafe { libc::calloc(2, size_of::<*mut IbvDevice>()) }.cast();
    if list.is_null() {
        return errno::pointer(Err(libc::ENOMEM));
    }
    // SAFETY: the list has two places; `count` is NULL or the program's.
    unsafe {
        *list = device();
        if !count.is_null() {
            *count = 1;
        }
    }
    list
}

/// Frees a list of devices. The device stays.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_free_device_list(list: *mut *mut IbvDevice) {
    // SAFETY: `ibv_get_device_list` has allocated the list.
    unsafe { libc::free(list.cast()) };
}

/// Returns the device's name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_name(device: *mut IbvDevice) -> *const c_char {
    // SAFETY: NULL, or the device of the list.
    unsafe { device.as_ref() }.map_or(std::ptr::null(), |device| device.name.as_ptr())
}

/// Returns the node's GUID in network order.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_guid(device: *mut IbvDevice) -> u64 {
    if device.is_null() { 0 } else { guid() }
}

/// Returns -1: the device has no index in the kernel.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_index(_device: *mut IbvDevice) -> c_int {
    -1
}
