//! The table of functions before a context, which the inline functions of `verbs.h` call.

use super::completion::{IbvCqEx, IbvCqInitAttrEx, IbvModifyCqAttr};
use super::device::{IbvDeviceAttrEx, IbvPortAttr, IbvValuesEx};
use super::memory::{IbvAllocDmAttr, IbvDm, IbvParentDomainInitAttr, IbvTd, IbvTdInitAttr};
use super::objects::{Absent, IbvContext, IbvCq, IbvMr, IbvPd, IbvQp, IbvSge, IbvSrq};
use super::queue_pair::{IbvQpInitAttrEx, IbvQpOpenAttr, IbvQpRateLimitAttr};
use super::receive::{IbvSrqInitAttrEx, IbvXrcd, IbvXrcdInitAttr};
use std::ffi::{c_int, c_uint, c_void};

/// `abi_compat` of a context that has a [`VerbsContext`] around it.
pub const EXTENDED: *mut c_void = usize::MAX as *mut c_void;

abi! {
    /// The table that precedes the context. It grows towards lower addresses; `sz` tells the caller how much
    /// of it exists.
    struct VerbsContext = "struct verbs_context" {
        query_port: Option<unsafe extern "C" fn(*mut IbvContext, u8, *mut IbvPortAttr, usize) -> c_int>,
        advise_mr: Option<unsafe extern "C" fn(*mut IbvPd, c_int, u32, *mut IbvSge, u32) -> c_int>,
        alloc_null_mr: Option<unsafe extern "C" fn(*mut IbvPd) -> *mut IbvMr>,
        read_counters: Absent,
        attach_counters_point_flow: Absent,
        create_counters: Absent,
        destroy_counters: Absent,
        reg_dm_mr: Option<unsafe extern "C" fn(*mut IbvPd, *mut IbvDm, u64, usize, c_uint) -> *mut IbvMr>,
        alloc_dm: Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvAllocDmAttr) -> *mut IbvDm>,
        free_dm: Option<unsafe extern "C" fn(*mut IbvDm) -> c_int>,
        modify_flow_action_esp: Absent,
        destroy_flow_action: Absent,
        create_flow_action_esp: Absent,
        modify_qp_rate_limit: Option<unsafe extern "C" fn(*mut IbvQp, *mut IbvQpRateLimitAttr) -> c_int>,
        alloc_parent_domain:
            Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvParentDomainInitAttr) -> *mut IbvPd>,
        dealloc_td: Option<unsafe extern "C" fn(*mut IbvTd) -> c_int>,
        alloc_td: Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvTdInitAttr) -> *mut IbvTd>,
        modify_cq: Option<unsafe extern "C" fn(*mut IbvCq, *mut IbvModifyCqAttr) -> c_int>,
        post_srq_ops: Absent,
        destroy_rwq_ind_table: Absent,
        create_rwq_ind_table: Absent,
        destroy_wq: Absent,
        modify_wq: Absent,
        create_wq: Absent,
        query_rt_values: Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvValuesEx) -> c_int>,
        create_cq_ex: Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvCqInitAttrEx) -> *mut IbvCqEx>,
        r#priv: *mut c_void,
        query_device_ex:
            Option<unsafe extern "C" fn(*mut IbvContext, *const c_void, *mut IbvDeviceAttrEx, usize) -> c_int>,
        ibv_destroy_flow: Absent,
        ABI_placeholder2: Absent,
        ibv_create_flow: Absent,
        ABI_placeholder1: Absent,
        open_qp: Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvQpOpenAttr) -> *mut IbvQp>,
        create_qp_ex: Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvQpInitAttrEx) -> *mut IbvQp>,
        get_srq_num: Option<unsafe extern "C" fn(*mut IbvSrq, *mut u32) -> c_int>,
        create_srq_ex: Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvSrqInitAttrEx) -> *mut IbvSrq>,
        open_xrcd: Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvXrcdInitAttr) -> *mut IbvXrcd>,
        close_xrcd: Option<unsafe extern "C" fn(*mut IbvXrcd) -> c_int>,
        _ABI_placeholder3: u64,
        sz: usize,
        context: IbvContext,
    }

    /// An asynchronous event. `element` holds the address of the affected object, or the number of a port.
    struct IbvAsyncEvent = "struct ibv_async_event" {
        element: u64,
        event_type: c_int,
    }
}
