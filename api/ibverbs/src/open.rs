//! Opening the device, and the function tables that `verbs.h` calls.

use remora_abi::context::{EXTENDED, VerbsContext};
use remora_abi::device::IbvDevice;
use remora_abi::objects::{Absent, IbvContext, IbvContextOps};
use remora_verbs::raw::EventQueue;
use rustix::fs::{MemfdFlags, memfd_create};
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use crate::context::ContextObject;
use crate::handles::{self, MUTEX};
use crate::nic::{Subject, Watcher};
use crate::{
    bind_mw, cq, device, dm, errno, explain, mr, mw, nic, open_qp, parent_domain, port, post, qp,
    query_device, srq, td, xrc,
};

/// The functions of the data path.
fn ops() -> IbvContextOps {
    let none: Absent = None;
    IbvContextOps {
        _compat_query_device: [none; 7],
        alloc_mw: Some(mw::alloc_mw),
        bind_mw: Some(bind_mw::bind_mw),
        dealloc_mw: Some(mw::dealloc_mw),
        _compat_create_cq: [none; 1],
        poll_cq: Some(cq::poll_cq),
        req_notify_cq: Some(cq::req_notify_cq),
        _compat_cq_event: [none; 7],
        post_srq_recv: Some(post::post_srq_recv),
        _compat_create_qp: [none; 4],
        post_send: Some(post::post_send),
        post_recv: Some(post::post_recv),
        _compat_create_ah: [none; 5],
    }
}

/// The function table that precedes the context. Empty entries are features that this NIC does not have:
/// flow steering, counters, raw packet queues, receive work queues, tag matching, IPsec.
fn verbs(context: IbvContext) -> VerbsContext {
    VerbsContext {
        query_port: Some(port::query_port),
        advise_mr: Some(mr::advise_mr),
        alloc_null_mr: Some(mr::alloc_null_mr),
        read_counters: None,
        attach_counters_point_flow: None,
        create_counters: None,
        destroy_counters: None,
        reg_dm_mr: Some(dm::reg_dm_mr),
        alloc_dm: Some(dm::alloc_dm),
        free_dm: Some(dm::free_dm),
        modify_flow_action_esp: None,
        destroy_flow_action: None,
        create_flow_action_esp: None,
        modify_qp_rate_limit: Some(qp::modify_qp_rate_limit),
        alloc_parent_domain: Some(parent_domain::alloc_parent_domain),
        dealloc_td: Some(td::dealloc_td),
        alloc_td: Some(td::alloc_td),
        modify_cq: Some(cq::modify_cq),
        post_srq_ops: None,
        destroy_rwq_ind_table: None,
        create_rwq_ind_table: None,
        destroy_wq: None,
        modify_wq: None,
        create_wq: None,
        query_rt_values: Some(query_device::query_rt_values),
        create_cq_ex: Some(cq::create_cq_ex),
        r#priv: std::ptr::null_mut(),
        query_device_ex: Some(query_device::query_device_ex),
        ibv_destroy_flow: None,
        ABI_placeholder2: None,
        ibv_create_flow: None,
        ABI_placeholder1: None,
        open_qp: Some(open_qp::open_qp),
        create_qp_ex: Some(qp::create_qp_ex),
        get_srq_num: Some(srq::get_srq_num),
        create_srq_ex: Some(srq::create_srq_ex),
        open_xrcd: Some(xrc::open_xrcd),
        close_xrcd: Some(xrc::close_xrcd),
        _ABI_placeholder3: 0,
        sz: size_of::<VerbsContext>(),
        context,
    }
}

/// Opens a view of the NIC of this process.
pub(crate) fn open(device: *mut IbvDevice) -> Result<*mut IbvContext, c_int> {
    if device.is_null() || device != device::device() {
        return Err(libc::ENODEV);
    }
    let nic = nic::shared()?;
    let of_system = |error: std::io::Error| error.raw_os_error().unwrap_or(libc::EIO);
    let events = Arc::new(EventQueue::new(nic::MAX_EVENTS).map_err(of_system)?);
    // A memfd has an inode of its own, which identifies the context.
    let command =
        memfd_create("remora-context", MemfdFlags::CLOEXEC).map_err(|error| of_system(error.into()))?;
    let context = IbvContext {
        device,
        ops: ops(),
        cmd_fd: command.as_raw_fd(),
        async_fd: events.as_fd().as_raw_fd(),
        num_comp_vectors: cq::VECTORS,
        mutex: MUTEX,
        abi_compat: EXTENDED,
    };
    let watcher = Watcher::new::<IbvDevice>(std::ptr::null_mut(), &events);
    nic.watch(Subject::Device(context.async_fd), &watcher);
    Ok(handles::give(Box::new(ContextObject { verbs: verbs(context), nic, events, watcher, command })))
}

/// Opens the device.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_open_device(device: *mut IbvDevice) -> *mut IbvContext {
    errno::pointer(open(device))
}

/// Closes a view of the NIC. The NIC lives as long as the process.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_close_device(context: *mut IbvContext) -> c_int {
    errno::minus_one(handles::take::<ContextObject>(context).map(|object| {
        object.nic.publish();
        explain::closed(&object.nic);
    }))
}
