//! Thread domains, parent domains, and memory on the device.

use super::objects::{IbvContext, IbvPd};
use std::ffi::{c_int, c_void};

/// A program's allocator for the memory of objects. The library accepts it and does not call it.
pub type PdAlloc = Option<unsafe extern "C" fn(*mut IbvPd, *mut c_void, usize, usize, u64) -> *mut c_void>;
/// The program's function that frees memory of its [`PdAlloc`].
pub type PdFree = Option<unsafe extern "C" fn(*mut IbvPd, *mut c_void, *mut c_void, u64)>;
/// The function that copies into device memory.
pub type MemcpyToDm = Option<unsafe extern "C" fn(*mut IbvDm, u64, *const c_void, usize) -> c_int>;
/// The function that copies out of device memory.
pub type MemcpyFromDm = Option<unsafe extern "C" fn(*mut c_void, *mut IbvDm, u64, usize) -> c_int>;

abi! {
    /// A thread domain (`ibv_alloc_td`).
    struct IbvTd = "struct ibv_td" {
        context: *mut IbvContext,
    }

    /// The attributes of a thread domain.
    struct IbvTdInitAttr = "struct ibv_td_init_attr" {
        comp_mask: u32,
    }

    /// The attributes of a parent domain.
    struct IbvParentDomainInitAttr = "struct ibv_parent_domain_init_attr" {
        pd: *mut IbvPd,
        td: *mut IbvTd,
        comp_mask: u32,
        alloc: PdAlloc,
        free: PdFree,
        pd_context: *mut c_void,
    }

    /// A block of memory on the device.
    struct IbvDm = "struct ibv_dm" {
        context: *mut IbvContext,
        memcpy_to_dm: MemcpyToDm,
        memcpy_from_dm: MemcpyFromDm,
        comp_mask: u32,
        handle: u32,
    }

    /// The attributes of memory on the device.
    struct IbvAllocDmAttr = "struct ibv_alloc_dm_attr" {
        length: usize,
        log_align_req: u32,
        comp_mask: u32,
    }
}
