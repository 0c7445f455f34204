//! The symbols that rdma-core's libraries, providers and tools share among themselves, with the private
//! versions of all releases from 25 on (`private-symbols.txt`). Programs that are linked against another
//! release's libmlx5 or libefa can then start. The providers register their drivers, which no device here
//! uses.

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicBool;

use crate::absent::absent;

/// A flag that providers read when a device is gone.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is the ABI's")]
pub(crate) static verbs_allow_disassociate_destroy: AtomicBool = AtomicBool::new(false);

/// Defines functions by which a provider registers its driver. No device uses it.
macro_rules! drivers {
    ($($name:ident)*) => {
        $(
            /// Registers a provider's driver. Does nothing.
            #[unsafe(no_mangle)]
            pub(crate) extern "C" fn $name(_ops: *const c_void) {}
        )*
    };
}

drivers! {
    verbs_register_driver_25 verbs_register_driver_33 verbs_register_driver_34 verbs_register_driver_57
    verbs_register_driver_59 verbs_register_driver_64 verbs_register_driver_65
}

/// Destroys a heap of buffers for confidential computing, of which there is none. Does nothing.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_dmabuf_heap_destroy(_heap: *mut c_void) {}

/// Frees a buffer of such a heap. Does nothing.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_dmabuf_heap_free(_buffer: *mut c_void, _size: usize, _descriptor: c_int) {}

/// Registers a driver by the first ABI. Does nothing.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_register_driver(_name: *const c_void, _init: *const c_void) {}

/// Writes a provider's log line. Does nothing.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __verbs_log(_context: *mut c_void, _level: u32, _format: *const c_void) {}

/// Sets the functions of a provider's context, of which there is none. Does nothing.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn verbs_set_ops(_context: *mut c_void, _ops: *const c_void) {}

/// Ends a provider's context. Does nothing.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn verbs_uninit_context(_context: *mut c_void) {}

/// Initialises a provider's completion queue. Does nothing.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn verbs_init_cq(
    _cq: *mut c_void,
    _context: *mut c_void,
    _channel: *mut c_void,
    _cq_context: *mut c_void,
) {
}

/// Returns the number of attributes of an ioctl command, which no kernel receives.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __ioctl_final_num_attrs(count: c_int) -> c_int {
    count
}

absent! {
    number:
        execute_ioctl ibv_cmd_advise_mr ibv_cmd_alloc_dm ibv_cmd_alloc_mw ibv_cmd_alloc_pd
        ibv_cmd_attach_mcast ibv_cmd_close_xrcd ibv_cmd_create_ah ibv_cmd_create_counters
        ibv_cmd_create_cq ibv_cmd_create_cq_ex ibv_cmd_create_flow ibv_cmd_create_flow_action_esp
        ibv_cmd_create_qp ibv_cmd_create_qp_ex ibv_cmd_create_qp_ex2 ibv_cmd_create_rwq_ind_table
        ibv_cmd_create_srq ibv_cmd_create_srq_ex ibv_cmd_create_wq ibv_cmd_dealloc_mw
        ibv_cmd_dealloc_pd ibv_cmd_dereg_mr ibv_cmd_destroy_ah ibv_cmd_destroy_counters
        ibv_cmd_destroy_cq ibv_cmd_destroy_flow ibv_cmd_destroy_flow_action ibv_cmd_destroy_qp
        ibv_cmd_destroy_rwq_ind_table ibv_cmd_destroy_srq ibv_cmd_destroy_wq ibv_cmd_detach_mcast
        ibv_cmd_free_dm ibv_cmd_get_context ibv_cmd_modify_cq ibv_cmd_modify_flow_action_esp
        ibv_cmd_modify_qp ibv_cmd_modify_qp_ex ibv_cmd_modify_srq ibv_cmd_modify_wq ibv_cmd_open_qp
        ibv_cmd_open_xrcd ibv_cmd_poll_cq ibv_cmd_post_recv ibv_cmd_post_send ibv_cmd_post_srq_recv
        ibv_cmd_query_context ibv_cmd_query_device_any ibv_cmd_query_mr ibv_cmd_query_port
        ibv_cmd_query_qp ibv_cmd_query_srq ibv_cmd_read_counters ibv_cmd_reg_dm_mr
        ibv_cmd_reg_dmabuf_mr ibv_cmd_reg_mr ibv_cmd_req_notify_cq ibv_cmd_rereg_mr ibv_cmd_resize_cq
        ibv_cmd_alloc_dmah ibv_cmd_create_comp_cntr ibv_cmd_create_cq_ex2 ibv_cmd_destroy_comp_cntr
        ibv_cmd_free_dmah ibv_cmd_inc_comp_cntr ibv_cmd_inc_err_comp_cntr ibv_cmd_qp_attach_comp_cntr
        ibv_cmd_query_comp_cntr_caps ibv_cmd_query_device ibv_cmd_query_device_ex ibv_cmd_query_port_speed
        ibv_cmd_read_comp_cntr ibv_cmd_read_err_comp_cntr ibv_cmd_reg_mr_ex ibv_cmd_set_comp_cntr
        ibv_cmd_set_err_comp_cntr ibv_get_fw_ver;
    pointer:
        _verbs_init_and_alloc_context ibv_dmabuf_heap_alloc ibv_dmabuf_heap_cc_shared_init verbs_open_device;
    minus_one:
        ibv_cmd_export_dmabuf_fd
}
