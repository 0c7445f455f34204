//! Public functions for features that this NIC does not have. They return EOPNOTSUPP.

use std::ffi::{c_int, c_void};

/// Defines functions that return an errno, a NULL pointer, or -1 with the errno set. They declare no
/// parameters: in C's ABI, arguments that a function does not take are ignored.
macro_rules! absent {
    (number: $($number:ident)*; pointer: $($pointer:ident)*; minus_one: $($minus:ident)*) => {
        $(
            /// Sets errno to EOPNOTSUPP and returns it.
            #[unsafe(no_mangle)]
            pub(crate) extern "C" fn $number() -> c_int {
                $crate::errno::set(libc::EOPNOTSUPP)
            }
        )*
        $(
            /// Returns NULL with EOPNOTSUPP.
            #[unsafe(no_mangle)]
            pub(crate) extern "C" fn $pointer() -> *mut c_void {
                $crate::errno::pointer(Err(libc::EOPNOTSUPP))
            }
        )*
        $(
            /// Returns -1 with EOPNOTSUPP.
            #[unsafe(no_mangle)]
            pub(crate) extern "C" fn $minus() -> c_int {
                $crate::errno::minus_one(Err(libc::EOPNOTSUPP))
            }
        )*
    };
}
pub(crate) use absent;

absent! {
    number:
        _ibv_query_comp_cntr_caps ibv_dealloc_dmah ibv_destroy_comp_cntr ibv_inc_comp_cntr
        ibv_inc_err_comp_cntr ibv_qp_attach_comp_cntr ibv_read_comp_cntr ibv_read_err_comp_cntr
        ibv_resolve_eth_l2_from_gid ibv_set_comp_cntr ibv_set_err_comp_cntr;
    pointer:
        ibv_alloc_buf ibv_alloc_dmah ibv_create_comp_cntr ibv_reg_buf_mr ibv_reg_dmabuf_mr ibv_reg_mr_ex;
    minus_one:
        ibv_dm_export_dmabuf_fd ibv_export_buf_dmabuf_fd
}

/// Frees a buffer of `ibv_alloc_buf`, which allocates none. Does nothing.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_free_buf() {}
