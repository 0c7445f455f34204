//! Attributes of queue pairs, address vectors, and queue pairs with one function for each operation.

use super::device::IbvGid;
use super::objects::{IbvAh, IbvCq, IbvMw, IbvMwBindInfo, IbvPd, IbvQp, IbvSge, IbvSrq};
use super::receive::IbvXrcd;
use super::work::IbvDataBuf;
use std::ffi::{c_int, c_void};

/// The type `IBV_QPT_RC`: reliable connection.
pub const QPT_RC: c_int = 2;
/// The type `IBV_QPT_UC`: unreliable connection.
pub const QPT_UC: c_int = 3;
/// The type `IBV_QPT_UD`: unreliable datagram.
pub const QPT_UD: c_int = 4;
/// The type `IBV_QPT_RAW_PACKET`: raw Ethernet packets.
pub const QPT_RAW_PACKET: c_int = 8;
/// The type `IBV_QPT_XRC_SEND`: the initiator of an extended reliable connection.
pub const QPT_XRC_SEND: c_int = 9;
/// The type `IBV_QPT_XRC_RECV`: the target of an extended reliable connection.
pub const QPT_XRC_RECV: c_int = 10;
/// The type `IBV_QPT_DRIVER`: a type of the vendor's.
pub const QPT_DRIVER: c_int = 0xff;

/// The values of `enum ibv_qp_state`.
pub mod qp_state {
    use std::ffi::c_int;

    pub const INIT: c_int = 1;
    pub const RTR: c_int = 2;
    pub const RTS: c_int = 3;
    pub const ERR: c_int = 6;
}

/// The bits of `enum ibv_qp_attr_mask`.
pub mod attr_mask {
    use std::ffi::c_int;

    pub const STATE: c_int = 1 << 0;
    pub const CUR_STATE: c_int = 1 << 1;
    pub const EN_SQD_ASYNC_NOTIFY: c_int = 1 << 2;
    pub const ACCESS_FLAGS: c_int = 1 << 3;
    pub const PKEY_INDEX: c_int = 1 << 4;
    pub const PORT: c_int = 1 << 5;
    pub const QKEY: c_int = 1 << 6;
    pub const AV: c_int = 1 << 7;
    pub const PATH_MTU: c_int = 1 << 8;
    pub const TIMEOUT: c_int = 1 << 9;
    pub const RETRY_CNT: c_int = 1 << 10;
    pub const RNR_RETRY: c_int = 1 << 11;
    pub const RQ_PSN: c_int = 1 << 12;
    pub const MAX_QP_RD_ATOMIC: c_int = 1 << 13;
    pub const ALT_PATH: c_int = 1 << 14;
    pub const MIN_RNR_TIMER: c_int = 1 << 15;
    pub const SQ_PSN: c_int = 1 << 16;
    pub const MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
    pub const PATH_MIG_STATE: c_int = 1 << 18;
    pub const CAP: c_int = 1 << 19;
    pub const DEST_QPN: c_int = 1 << 20;
    pub const RATE_LIMIT: c_int = 1 << 25;
}

/// The bits of `enum ibv_qp_init_attr_mask`.
pub mod init_attr {
    pub const PD: u32 = 1 << 0;
    pub const XRCD: u32 = 1 << 1;
    pub const CREATE_FLAGS: u32 = 1 << 2;
    pub const SEND_OPS_FLAGS: u32 = 1 << 6;
}

/// A pointer to a queue pair with one function for each operation.
type Ex = *mut IbvQpEx;

abi! {
    /// A queue pair with one function for each operation, in the layout of Debian 12.
    struct IbvQpEx = "struct ibv_qp_ex" {
        qp_base: IbvQp,
        comp_mask: u64,
        wr_id: u64,
        wr_flags: u32,
        wr_atomic_cmp_swp: Option<unsafe extern "C" fn(Ex, u32, u64, u64, u64)>,
        wr_atomic_fetch_add: Option<unsafe extern "C" fn(Ex, u32, u64, u64)>,
        wr_bind_mw: Option<unsafe extern "C" fn(Ex, *mut IbvMw, u32, *const IbvMwBindInfo)>,
        wr_local_inv: Option<unsafe extern "C" fn(Ex, u32)>,
        wr_rdma_read: Option<unsafe extern "C" fn(Ex, u32, u64)>,
        wr_rdma_write: Option<unsafe extern "C" fn(Ex, u32, u64)>,
        wr_rdma_write_imm: Option<unsafe extern "C" fn(Ex, u32, u64, u32)>,
        wr_send: Option<unsafe extern "C" fn(Ex)>,
        wr_send_imm: Option<unsafe extern "C" fn(Ex, u32)>,
        wr_send_inv: Option<unsafe extern "C" fn(Ex, u32)>,
        wr_send_tso: Option<unsafe extern "C" fn(Ex, *mut c_void, u16, u16)>,
        wr_set_ud_addr: Option<unsafe extern "C" fn(Ex, *mut IbvAh, u32, u32)>,
        wr_set_xrc_srqn: Option<unsafe extern "C" fn(Ex, u32)>,
        wr_set_inline_data: Option<unsafe extern "C" fn(Ex, *mut c_void, usize)>,
        wr_set_inline_data_list: Option<unsafe extern "C" fn(Ex, usize, *const IbvDataBuf)>,
        wr_set_sge: Option<unsafe extern "C" fn(Ex, u32, u64, u32)>,
        wr_set_sge_list: Option<unsafe extern "C" fn(Ex, usize, *const IbvSge)>,
        wr_start: Option<unsafe extern "C" fn(Ex)>,
        wr_complete: Option<unsafe extern "C" fn(Ex) -> c_int>,
        wr_abort: Option<unsafe extern "C" fn(Ex)>,
        wr_atomic_write: Option<unsafe extern "C" fn(Ex, u32, u64, *const c_void)>,
    }

    /// The sizes of a queue pair's queues.
    struct IbvQpCap = "struct ibv_qp_cap" {
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
    }

    /// The attributes of a new queue pair.
    struct IbvQpInitAttr = "struct ibv_qp_init_attr" {
        qp_context: *mut c_void,
        send_cq: *mut IbvCq,
        recv_cq: *mut IbvCq,
        srq: *mut IbvSrq,
        cap: IbvQpCap,
        qp_type: c_int,
        sq_sig_all: c_int,
    }

    /// The hash parameters of incoming packets, which this device does not support.
    struct IbvRxHashConf = "struct ibv_rx_hash_conf" {
        rx_hash_function: u8,
        rx_hash_key_len: u8,
        rx_hash_key: *mut u8,
        rx_hash_fields_mask: u64,
    }

    /// The extended attributes of a new queue pair.
    struct IbvQpInitAttrEx = "struct ibv_qp_init_attr_ex" {
        qp_context: *mut c_void,
        send_cq: *mut IbvCq,
        recv_cq: *mut IbvCq,
        srq: *mut IbvSrq,
        cap: IbvQpCap,
        qp_type: c_int,
        sq_sig_all: c_int,
        comp_mask: u32,
        pd: *mut IbvPd,
        xrcd: *mut IbvXrcd,
        create_flags: u32,
        max_tso_header: u16,
        rwq_ind_tbl: *mut c_void,
        rx_hash_conf: IbvRxHashConf,
        source_qpn: u32,
        send_ops_flags: u64,
    }

    /// The attributes for opening a shared XRC target.
    struct IbvQpOpenAttr = "struct ibv_qp_open_attr" {
        comp_mask: u32,
        qp_num: u32,
        xrcd: *mut IbvXrcd,
        qp_context: *mut c_void,
        qp_type: c_int,
    }

    /// The rate limit of a queue pair.
    struct IbvQpRateLimitAttr = "struct ibv_qp_rate_limit_attr" {
        rate_limit: u32,
        max_burst_sz: u32,
        typical_pkt_sz: u16,
        comp_mask: u32,
    }

    /// The part of an address vector that RoCE uses.
    struct IbvGlobalRoute = "struct ibv_global_route" {
        dgid: IbvGid,
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
    }

    /// An address vector, which describes the path to a peer.
    struct IbvAhAttr = "struct ibv_ah_attr" {
        grh: IbvGlobalRoute,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
    }

    /// The attributes of a queue pair.
    struct IbvQpAttr = "struct ibv_qp_attr" {
        qp_state: c_int,
        cur_qp_state: c_int,
        path_mtu: c_int,
        path_mig_state: c_int,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        cap: IbvQpCap,
        ah_attr: IbvAhAttr,
        alt_ah_attr: IbvAhAttr,
        pkey_index: u16,
        alt_pkey_index: u16,
        en_sqd_async_notify: u8,
        sq_draining: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        rate_limit: u32,
    }
}
