//! Work requests, address handles and headers.

use super::context::IbvContext;
use super::device::IbvGid;
use super::memory::{IbvMw, IbvMwBindInfo, IbvPd, IbvSge};
use std::ffi::{c_int, c_void};

abi! {
    /// An address handle.
    struct IbvAh = "struct ibv_ah" {
        context: *mut IbvContext,
        pd: *mut IbvPd,
        handle: u32,
    }

    /// A global route header, as it stands before a datagram.
    struct IbvGrh = "struct ibv_grh" {
        version_tclass_flow: u32,
        paylen: u16,
        next_hdr: u8,
        hop_limit: u8,
        sgid: IbvGid,
        dgid: IbvGid,
    }

    /// Bytes of the program.
    struct IbvDataBuf = "struct ibv_data_buf" {
        addr: *mut c_void,
        length: usize,
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

/// Where a work request goes (`wr`): its meaning depends on the op-code.
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

/// The target and operands of an atomic.
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
