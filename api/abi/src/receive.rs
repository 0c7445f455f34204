//! Attributes of shared receive queues, and XRC domains.

use super::objects::{IbvContext, IbvCq, IbvPd};
use std::ffi::{c_int, c_void};

/// The type `IBV_SRQT_BASIC` of shared receive queues.
pub const SRQT_BASIC: c_int = 0;
/// The type `IBV_SRQT_XRC` of shared receive queues.
pub const SRQT_XRC: c_int = 1;
/// The bits of `enum ibv_srq_init_attr_mask`.
pub mod srq_init_attr {
    pub const TYPE: u32 = 1 << 0;
    pub const PD: u32 = 1 << 1;
    pub const XRCD: u32 = 1 << 2;
    pub const CQ: u32 = 1 << 3;
    /// All bits that `verbs.h` names. The last one is for tag matching.
    pub const KNOWN: u32 = 0x1f;
}

/// `IBV_XRCD_INIT_ATTR_FD` and `IBV_XRCD_INIT_ATTR_OFLAGS`. A new domain needs both.
pub const XRCD_INIT_ATTR: u32 = 1 << 0 | 1 << 1;

abi! {
    /// The size and the limit of a shared receive queue.
    struct IbvSrqAttr = "struct ibv_srq_attr" {
        max_wr: u32,
        max_sge: u32,
        srq_limit: u32,
    }

    /// The attributes of a new shared receive queue.
    struct IbvSrqInitAttr = "struct ibv_srq_init_attr" {
        srq_context: *mut c_void,
        attr: IbvSrqAttr,
    }

    /// The extended attributes of a new shared receive queue.
    struct IbvSrqInitAttrEx = "struct ibv_srq_init_attr_ex" {
        srq_context: *mut c_void,
        attr: IbvSrqAttr,
        comp_mask: u32,
        srq_type: c_int,
        pd: *mut IbvPd,
        xrcd: *mut IbvXrcd,
        cq: *mut IbvCq,
        tm_cap: [u32; 2],
    }

    /// An XRC domain (`ibv_open_xrcd`).
    struct IbvXrcd = "struct ibv_xrcd" {
        context: *mut IbvContext,
    }

    /// The attributes of an XRC domain.
    struct IbvXrcdInitAttr = "struct ibv_xrcd_init_attr" {
        comp_mask: u32,
        fd: c_int,
        oflags: c_int,
    }
}
