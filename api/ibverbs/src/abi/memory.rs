//! Domains, regions, windows and device memory.

use super::context::IbvContext;
use std::ffi::{c_int, c_void};

/// A program's allocator for the memory of objects: accepted, and not called.
pub type PdAlloc = Option<unsafe extern "C" fn(*mut IbvPd, *mut c_void, usize, usize, u64) -> *mut c_void>;
/// The other half of it.
pub type PdFree = Option<unsafe extern "C" fn(*mut IbvPd, *mut c_void, *mut c_void, u64)>;
/// Copies into device memory.
pub type MemcpyToDm = Option<unsafe extern "C" fn(*mut IbvDm, u64, *const c_void, usize) -> c_int>;
/// Copies out of device memory.
pub type MemcpyFromDm = Option<unsafe extern "C" fn(*mut c_void, *mut IbvDm, u64, usize) -> c_int>;

abi! {
    /// A protection domain.
    struct IbvPd = "struct ibv_pd" {
        context: *mut IbvContext,
        handle: u32,
    }

    /// A thread domain.
    struct IbvTd = "struct ibv_td" {
        context: *mut IbvContext,
    }

    /// Attributes of a thread domain.
    struct IbvTdInitAttr = "struct ibv_td_init_attr" {
        comp_mask: u32,
    }

    /// Attributes of a parent domain.
    struct IbvParentDomainInitAttr = "struct ibv_parent_domain_init_attr" {
        pd: *mut IbvPd,
        td: *mut IbvTd,
        comp_mask: u32,
        alloc: PdAlloc,
        free: PdFree,
        pd_context: *mut c_void,
    }

    /// A memory region.
    struct IbvMr = "struct ibv_mr" {
        context: *mut IbvContext,
        pd: *mut IbvPd,
        addr: *mut c_void,
        length: usize,
        handle: u32,
        lkey: u32,
        rkey: u32,
    }

    /// A memory window.
    struct IbvMw = "struct ibv_mw" {
        context: *mut IbvContext,
        pd: *mut IbvPd,
        rkey: u32,
        handle: u32,
        r#type: c_int,
    }

    /// What a window shall show.
    struct IbvMwBindInfo = "struct ibv_mw_bind_info" {
        mr: *mut IbvMr,
        addr: u64,
        length: u64,
        mw_access_flags: u32,
    }

    /// The arguments of `ibv_bind_mw`.
    struct IbvMwBind = "struct ibv_mw_bind" {
        wr_id: u64,
        send_flags: u32,
        bind_info: IbvMwBindInfo,
    }

    /// Memory on the device.
    struct IbvDm = "struct ibv_dm" {
        context: *mut IbvContext,
        memcpy_to_dm: MemcpyToDm,
        memcpy_from_dm: MemcpyFromDm,
        comp_mask: u32,
        handle: u32,
    }

    /// Attributes of memory on the device.
    struct IbvAllocDmAttr = "struct ibv_alloc_dm_attr" {
        length: usize,
        log_align_req: u32,
        comp_mask: u32,
    }

    /// One element of a list.
    struct IbvSge = "struct ibv_sge" {
        addr: u64,
        length: u32,
        lkey: u32,
    }
}
