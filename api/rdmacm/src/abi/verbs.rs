//! The part of `verbs.h` and `sa.h` that this library needs.

use std::ffi::{c_char, c_int, c_void};

/// `IBV_QPT_RC`.
pub const QPT_RC: c_int = 2;
/// `IBV_QPT_UC`.
pub const QPT_UC: c_int = 3;
/// `IBV_QPT_UD`.
pub const QPT_UD: c_int = 4;
/// `IBV_QPT_XRC_SEND`.
pub const QPT_XRC_SEND: c_int = 9;
/// `IBV_QPT_XRC_RECV`.
pub const QPT_XRC_RECV: c_int = 10;
/// `IBV_SRQT_BASIC`.
pub const SRQT_BASIC: c_int = 0;
/// `IBV_SRQT_XRC`.
pub const SRQT_XRC: c_int = 1;
/// The context has functions before it (`__VERBS_ABI_IS_EXTENDED`).
pub const EXTENDED: *mut c_void = usize::MAX as *mut c_void;

/// `enum ibv_qp_state`.
pub mod qp_state {
    use std::ffi::c_int;

    pub const INIT: c_int = 1;
    pub const RTR: c_int = 2;
    pub const RTS: c_int = 3;
    pub const ERR: c_int = 6;
}

/// `enum ibv_qp_attr_mask`.
pub mod attr_mask {
    use std::ffi::c_int;

    pub const STATE: c_int = 1 << 0;
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
    pub const MIN_RNR_TIMER: c_int = 1 << 15;
    pub const SQ_PSN: c_int = 1 << 16;
    pub const MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
    pub const DEST_QPN: c_int = 1 << 20;
}

/// `IBV_QP_INIT_ATTR_PD`.
pub const INIT_ATTR_PD: u32 = 1 << 0;
/// `IBV_QP_INIT_ATTR_XRCD`.
pub const INIT_ATTR_XRCD: u32 = 1 << 1;
/// `IBV_SRQ_INIT_ATTR_TYPE`, `_PD`, `_XRCD` and `_CQ`.
pub const SRQ_INIT_ATTR: [u32; 4] = [1 << 0, 1 << 1, 1 << 2, 1 << 3];

/// A device of the list.
#[repr(C)]
pub struct IbvDevice {
    _private: [u8; 0],
}

abi! {
    /// An open device.
    struct IbvContext = "struct ibv_context" {
        device: *mut IbvDevice,
        ops: [*const c_void; 32],
        cmd_fd: c_int,
        async_fd: c_int,
        num_comp_vectors: c_int,
        mutex: libc::pthread_mutex_t,
        abi_compat: *mut c_void,
    }

    /// The functions before an open device.
    struct VerbsContext = "struct verbs_context" {
        _before: [*const c_void; 32],
        open_qp: *const c_void,
        create_qp_ex: Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvQpInitAttrEx) -> *mut IbvQp>,
        get_srq_num: *const c_void,
        create_srq_ex: Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvSrqInitAttrEx) -> *mut IbvSrq>,
        open_xrcd: Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvXrcdInitAttr) -> *mut IbvXrcd>,
        close_xrcd: *const c_void,
        _placeholder: u64,
        sz: usize,
        context: IbvContext,
    }

    /// A protection domain.
    struct IbvPd = "struct ibv_pd" {
        context: *mut IbvContext,
        handle: u32,
    }

    /// A completion channel.
    struct IbvCompChannel = "struct ibv_comp_channel" {
        context: *mut IbvContext,
        fd: c_int,
        refcnt: c_int,
    }

    /// A completion queue.
    struct IbvCq = "struct ibv_cq" {
        context: *mut IbvContext,
        channel: *mut IbvCompChannel,
    }

    /// A shared receive queue.
    struct IbvSrq = "struct ibv_srq" {
        context: *mut IbvContext,
        srq_context: *mut c_void,
        pd: *mut IbvPd,
    }

    /// An XRC domain.
    struct IbvXrcd = "struct ibv_xrcd" {
        context: *mut IbvContext,
    }

    /// A queue pair.
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
    }

    /// The sizes of a queue pair's queues.
    struct IbvQpCap = "struct ibv_qp_cap" {
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
    }

    /// Attributes of a queue pair that is to be made.
    struct IbvQpInitAttr = "struct ibv_qp_init_attr" {
        qp_context: *mut c_void,
        send_cq: *mut IbvCq,
        recv_cq: *mut IbvCq,
        srq: *mut IbvSrq,
        cap: IbvQpCap,
        qp_type: c_int,
        sq_sig_all: c_int,
    }

    /// More attributes of a queue pair that is to be made.
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
        rx_hash_conf: [u64; 3],
        source_qpn: u32,
        send_ops_flags: u64,
    }

    /// The part of an address vector that RoCE uses.
    struct IbvGlobalRoute = "struct ibv_global_route" {
        dgid: IbvGid,
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
    }

    /// An address vector.
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

    /// The size and limit of a shared receive queue.
    struct IbvSrqAttr = "struct ibv_srq_attr" {
        max_wr: u32,
        max_sge: u32,
        srq_limit: u32,
    }

    /// Attributes of a shared receive queue that is to be made.
    struct IbvSrqInitAttr = "struct ibv_srq_init_attr" {
        srq_context: *mut c_void,
        attr: IbvSrqAttr,
    }

    /// More of them.
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

    /// Attributes of an XRC domain.
    struct IbvXrcdInitAttr = "struct ibv_xrcd_init_attr" {
        comp_mask: u32,
        fd: c_int,
        oflags: c_int,
    }

    /// The attributes of a device.
    struct IbvDeviceAttr = "struct ibv_device_attr" {
        fw_ver: [c_char; 64],
        node_guid: u64,
        _from_sys_image_guid: [u32; 18],
        max_qp_rd_atom: c_int,
        _from_max_ee_rd_atom: [c_int; 2],
        max_qp_init_rd_atom: c_int,
        _from_max_ee_init_rd_atom: [c_int; 16],
        max_pkeys: u16,
        local_ca_ack_delay: u8,
        phys_port_cnt: u8,
    }

    /// The attributes of a port.
    struct IbvPortAttr = "struct ibv_port_attr" {
        state: c_int,
        max_mtu: c_int,
        active_mtu: c_int,
        gid_tbl_len: c_int,
        _from_port_cap_flags: [u32; 4],
        _from_pkey_tbl_len: [u16; 3],
        _from_lmc: [u8; 12],
    }

    /// One entry of the GID table.
    struct IbvGidEntry = "struct ibv_gid_entry" {
        gid: IbvGid,
        gid_index: u32,
        port_num: u32,
        gid_type: u32,
        ndev_ifindex: u32,
    }

    /// Vendor options of a connection.
    struct IbvEce = "struct ibv_ece" {
        vendor_id: u32,
        options: u32,
        comp_mask: u32,
    }

    /// A path, as a subnet manager describes it.
    struct IbvSaPathRec = "struct ibv_sa_path_rec" {
        dgid: IbvGid,
        sgid: IbvGid,
        dlid: u16,
        slid: u16,
        raw_traffic: c_int,
        flow_label: u32,
        hop_limit: u8,
        traffic_class: u8,
        reversible: c_int,
        numb_path: u8,
        pkey: u16,
        sl: u8,
        mtu_selector: u8,
        mtu: u8,
        rate_selector: u8,
        rate: u8,
        packet_life_time_selector: u8,
        packet_life_time: u8,
        preference: u8,
    }
}

/// A GID (`union ibv_gid`): 16 bytes in network order, aligned as the two words that C has there.
#[repr(C, align(8))]
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct IbvGid {
    pub raw: [u8; 16],
}
