//! The objects that the data path uses, and the table of its functions. Each object points to its context,
//! and the context contains the table.
//! is of, which names them.

use super::device::IbvDevice;
use std::ffi::{c_int, c_void};

/// A function that this library does not offer. Programs find a null pointer and report EOPNOTSUPP.
pub type Absent = Option<unsafe extern "C" fn()>;

abi! {
    /// The functions of the data path. The unnamed places belonged to the first version of the ABI.
    struct IbvContextOps = "struct ibv_context_ops" {
        _compat_query_device: [Absent; 7],
        alloc_mw: Option<unsafe extern "C" fn(*mut IbvPd, c_int) -> *mut IbvMw>,
        bind_mw: Option<unsafe extern "C" fn(*mut IbvQp, *mut IbvMw, *mut IbvMwBind) -> c_int>,
        dealloc_mw: Option<unsafe extern "C" fn(*mut IbvMw) -> c_int>,
        _compat_create_cq: [Absent; 1],
        poll_cq: Option<unsafe extern "C" fn(*mut IbvCq, c_int, *mut IbvWc) -> c_int>,
        req_notify_cq: Option<unsafe extern "C" fn(*mut IbvCq, c_int) -> c_int>,
        _compat_cq_event: [Absent; 7],
        post_srq_recv: Option<unsafe extern "C" fn(*mut IbvSrq, *mut IbvRecvWr, *mut *mut IbvRecvWr) -> c_int>,
        _compat_create_qp: [Absent; 4],
        post_send: Option<unsafe extern "C" fn(*mut IbvQp, *mut IbvSendWr, *mut *mut IbvSendWr) -> c_int>,
        post_recv: Option<unsafe extern "C" fn(*mut IbvQp, *mut IbvRecvWr, *mut *mut IbvRecvWr) -> c_int>,
        _compat_create_ah: [Absent; 5],
    }

    /// An open device with its functions.
    struct IbvContext = "struct ibv_context" {
        device: *mut IbvDevice,
        ops: IbvContextOps,
        cmd_fd: c_int,
        async_fd: c_int,
        num_comp_vectors: c_int,
        mutex: libc::pthread_mutex_t,
        abi_compat: *mut c_void,
    }

    /// A protection domain (`ibv_alloc_pd`).
    struct IbvPd = "struct ibv_pd" {
        context: *mut IbvContext,
        handle: u32,
    }

    /// A registered memory region.
    struct IbvMr = "struct ibv_mr" {
        context: *mut IbvContext,
        pd: *mut IbvPd,
        addr: *mut c_void,
        length: usize,
        handle: u32,
        lkey: u32,
        rkey: u32,
    }

    /// A memory window (`ibv_alloc_mw`).
    struct IbvMw = "struct ibv_mw" {
        context: *mut IbvContext,
        pd: *mut IbvPd,
        rkey: u32,
        handle: u32,
        r#type: c_int,
    }

    /// The memory to which a window gives access.
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

    /// An element of a scatter/gather list.
    struct IbvSge = "struct ibv_sge" {
        addr: u64,
        length: u32,
        lkey: u32,
    }

    /// A completion channel, which delivers notifications.
    struct IbvCompChannel = "struct ibv_comp_channel" {
        context: *mut IbvContext,
        fd: c_int,
        refcnt: c_int,
    }

    /// A completion queue (`ibv_create_cq`).
    struct IbvCq = "struct ibv_cq" {
        context: *mut IbvContext,
        channel: *mut IbvCompChannel,
        cq_context: *mut c_void,
        handle: u32,
        cqe: c_int,
        mutex: libc::pthread_mutex_t,
        cond: libc::pthread_cond_t,
        comp_events_completed: u32,
        async_events_completed: u32,
    }

    /// The completion of a work request.
    struct IbvWc = "struct ibv_wc" {
        wr_id: u64,
        status: c_int,
        opcode: c_int,
        vendor_err: u32,
        byte_len: u32,
        imm_data: u32,
        qp_num: u32,
        src_qp: u32,
        wc_flags: u32,
        pkey_index: u16,
        slid: u16,
        sl: u8,
        dlid_path_bits: u8,
    }

    /// A shared receive queue.
    struct IbvSrq = "struct ibv_srq" {
        context: *mut IbvContext,
        srq_context: *mut c_void,
        pd: *mut IbvPd,
        handle: u32,
        mutex: libc::pthread_mutex_t,
        cond: libc::pthread_cond_t,
        events_completed: u32,
    }

    /// A queue pair of any type.
    struct IbvQp = "struct ibv_qp" {
        context: *mut IbvContext,
        qp_context: *mut c_void,
        pd: *mut IbvPd,
        send_cq: *mut IbvCq,
        recv_cq: *mut IbvCq,
        srq: *mut IbvSrq,
        handle: u32,
        qp_num: u32,
        state: c_int,
        qp_type: c_int,
        mutex: libc::pthread_mutex_t,
        cond: libc::pthread_cond_t,
        events_completed: u32,
    }

    /// An address handle for datagrams.
    struct IbvAh = "struct ibv_ah" {
        context: *mut IbvContext,
        pd: *mut IbvPd,
        handle: u32,
    }

    /// A receive work request.
    struct IbvRecvWr = "struct ibv_recv_wr" {
        wr_id: u64,
        next: *mut IbvRecvWr,
        sg_list: *mut IbvSge,
        num_sge: c_int,
    }

    /// A send work request.
    struct IbvSendWr = "struct ibv_send_wr" {
        wr_id: u64,
        next: *mut IbvSendWr,
        sg_list: *mut IbvSge,
        num_sge: c_int,
        opcode: c_int,
        send_flags: u32,
        imm_data: u32,
        wr: RemotePart,
        qp_type: u32,
        bind_mw: BindPart,
    }
}

/// The remote part of a work request (`wr`). The opcode selects its variant.
#[repr(C)]
#[derive(Copy, Clone)]
pub union RemotePart {
    pub rdma: RdmaPart,
    pub atomic: AtomicPart,
    pub ud: DatagramPart,
}

/// The target of a WRITE or READ.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct RdmaPart {
    pub remote_addr: u64,
    pub rkey: u32,
}

/// The target and operands of an atomic operation.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct AtomicPart {
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
}

/// The destination of a datagram.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct DatagramPart {
    pub ah: *mut IbvAh,
    pub remote_qpn: u32,
    pub remote_qkey: u32,
}

/// The operands of BIND_MW.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct BindPart {
    pub mw: *mut IbvMw,
    pub rkey: u32,
    pub bind_info: IbvMwBindInfo,
}
