//! `libibverbs.so.1` by its public ABI. Inline functions of its headers are functions here.

use remora_abi::context::{EXTENDED, VerbsContext};
use remora_abi::device::{IbvDevice, IbvDeviceAttr, IbvGid, IbvGidEntry, IbvPortAttr};
use remora_abi::objects::{IbvCompChannel, IbvContext, IbvCq, IbvPd, IbvQp, IbvSrq};
use remora_abi::queue_pair::{IbvQpAttr, IbvQpInitAttrEx};
use remora_abi::receive::{IbvSrqInitAttrEx, IbvXrcd, IbvXrcdInitAttr, XRCD_INIT_ATTR};
use std::ffi::{c_int, c_void};

use crate::errno;

// Unit tests are programs, which link the system's library.
#[cfg_attr(test, link(name = "ibverbs"))]
unsafe extern "C" {
    pub(crate) fn ibv_get_device_list(count: *mut c_int) -> *mut *mut IbvDevice;
    pub(crate) fn ibv_free_device_list(list: *mut *mut IbvDevice);
    pub(crate) fn ibv_open_device(device: *mut IbvDevice) -> *mut IbvContext;
    pub(crate) fn ibv_close_device(context: *mut IbvContext) -> c_int;
    pub(crate) fn ibv_dealloc_pd(pd: *mut IbvPd) -> c_int;
    pub(crate) fn ibv_query_device(context: *mut IbvContext, attr: *mut IbvDeviceAttr) -> c_int;
    pub(crate) fn ibv_query_port(context: *mut IbvContext, port: u8, attr: *mut IbvPortAttr) -> c_int;
    pub(crate) fn _ibv_query_gid_table(
        context: *mut IbvContext,
        entries: *mut IbvGidEntry,
        count: usize,
        flags: u32,
        entry_size: usize,
    ) -> isize;
    pub(crate) fn ibv_alloc_pd(context: *mut IbvContext) -> *mut IbvPd;
    pub(crate) fn ibv_create_comp_channel(context: *mut IbvContext) -> *mut IbvCompChannel;
    pub(crate) fn ibv_destroy_comp_channel(channel: *mut IbvCompChannel) -> c_int;
    pub(crate) fn ibv_create_cq(
        context: *mut IbvContext,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut IbvCompChannel,
        comp_vector: c_int,
    ) -> *mut IbvCq;
    pub(crate) fn ibv_destroy_cq(cq: *mut IbvCq) -> c_int;
    pub(crate) fn ibv_modify_qp(qp: *mut IbvQp, attr: *mut IbvQpAttr, mask: c_int) -> c_int;
    pub(crate) fn ibv_destroy_qp(qp: *mut IbvQp) -> c_int;
    pub(crate) fn ibv_destroy_srq(srq: *mut IbvSrq) -> c_int;
    pub(crate) fn ibv_attach_mcast(qp: *mut IbvQp, gid: *const IbvGid, lid: u16) -> c_int;
    pub(crate) fn ibv_detach_mcast(qp: *mut IbvQp, gid: *const IbvGid, lid: u16) -> c_int;
}

/// Converts the result of a function that returns NULL on an error, with the errno set.
pub(crate) fn made<T>(pointer: *mut T) -> Result<*mut T, c_int> {
    if pointer.is_null() { Err(errno::last()) } else { Ok(pointer) }
}

/// Converts the result of a function that returns an errno.
pub(crate) fn done(number: c_int) -> Result<(), c_int> {
    match number {
        0 => Ok(()),
        -1 => Err(errno::last()),
        errno => Err(errno),
    }
}

/// Returns the function table that precedes a context.
///
/// # Safety
/// The context was opened by libibverbs, and is open.
unsafe fn functions<'a>(context: *mut IbvContext) -> Result<&'a VerbsContext, c_int> {
    // SAFETY: the caller's promise.
    if context.is_null() || unsafe { (*context).abi_compat } != EXTENDED {
        return Err(libc::EOPNOTSUPP);
    }
    let offset = std::mem::offset_of!(VerbsContext, context);
    // SAFETY: `EXTENDED` marks a context that is the last field of such a table.
    Ok(unsafe { &*context.wrapping_byte_sub(offset).cast::<VerbsContext>() })
}

/// Calls `ibv_create_qp_ex`.
///
/// # Safety
/// The context is open.
pub(crate) unsafe fn create_qp(
    context: *mut IbvContext,
    attr: &mut IbvQpInitAttrEx,
) -> Result<*mut IbvQp, c_int> {
    // SAFETY: the caller's promise, and the context that the function belongs to.
    unsafe { made(functions(context)?.create_qp_ex.ok_or(libc::EOPNOTSUPP)?(context, attr)) }
}

/// Calls `ibv_create_srq_ex`.
///
/// # Safety
/// The context is open.
pub(crate) unsafe fn create_srq(
    context: *mut IbvContext,
    attr: &mut IbvSrqInitAttrEx,
) -> Result<*mut IbvSrq, c_int> {
    // SAFETY: the caller's promise, and the context that the function belongs to.
    unsafe { made(functions(context)?.create_srq_ex.ok_or(libc::EOPNOTSUPP)?(context, attr)) }
}

/// Calls `ibv_open_xrcd` for a domain without a file.
///
/// # Safety
/// The context is open.
pub(crate) unsafe fn open_xrcd(context: *mut IbvContext) -> Result<*mut IbvXrcd, c_int> {
    let mut attr = IbvXrcdInitAttr { comp_mask: XRCD_INIT_ATTR, fd: -1, oflags: libc::O_CREAT };
    // SAFETY: the caller's promise, and the context that the function belongs to.
    unsafe { made(functions(context)?.open_xrcd.ok_or(libc::EOPNOTSUPP)?(context, &mut attr)) }
}

/// Calls `ibv_close_xrcd`.
///
/// # Safety
/// The domain is open, and is closed once.
pub(crate) unsafe fn close_xrcd(xrcd: *mut IbvXrcd) -> Result<(), c_int> {
    // SAFETY: the caller's promise, and the context that the function belongs to.
    unsafe { done(functions((*xrcd).context)?.close_xrcd.ok_or(libc::EOPNOTSUPP)?(xrcd)) }
}

/// Returns a structure of the ABI whose fields are all zero.
pub(crate) fn zeroed<T: Copy>() -> T {
    // SAFETY: used for structures of the ABI, in which zero is valid for every field: C programs fill them
    // so.
    unsafe { std::mem::zeroed() }
}
