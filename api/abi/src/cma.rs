//! The structures and constants of `rdma_cma.h`.

use super::device::IbvGid;
use super::objects::{IbvCompChannel, IbvContext, IbvCq, IbvPd, IbvQp, IbvSrq};
use super::queue_pair::IbvAhAttr;
use super::sa::IbvSaPathRec;
use std::ffi::{c_char, c_int, c_void};

/// The port space `RDMA_PS_TCP` of reliable connections.
pub const PS_TCP: c_int = 0x0106;
/// The port space `RDMA_PS_UDP` of datagrams.
pub const PS_UDP: c_int = 0x0111;
/// The port space `RDMA_PS_IB` of native InfiniBand addresses.
pub const PS_IB: c_int = 0x013f;
/// The Q_Key of datagrams (`RDMA_UDP_QKEY`).
pub const UDP_QKEY: u32 = 0x0123_4567;
/// The value that selects the device's maximum number of READs and atomics (`RDMA_MAX_RESP_RES`,
/// `RDMA_MAX_INIT_DEPTH`).
pub const MOST: u8 = 0xff;
/// The flag `RAI_PASSIVE`: the address is for listening.
pub const RAI_PASSIVE: c_int = 1;
/// The flag `RAI_NUMERICHOST`: the host is a numeric address.
pub const RAI_NUMERICHOST: c_int = 2;
/// The flag `RAI_FAMILY`: the hints select an address family.
pub const RAI_FAMILY: c_int = 8;
/// The flag `RAI_SA`: the route is resolved with the subnet administrator.
pub const RAI_SA: c_int = 16;
/// The flag `RAI_DNS`: the host name is resolved through DNS.
pub const RAI_DNS: c_int = 32;

/// The values of `enum rdma_cm_event_type`.
pub mod event_type {
    use std::ffi::c_int;

    pub const ADDR_RESOLVED: c_int = 0;
    pub const ADDR_ERROR: c_int = 1;
    pub const ROUTE_RESOLVED: c_int = 2;
    pub const CONNECT_REQUEST: c_int = 4;
    pub const CONNECT_RESPONSE: c_int = 5;
    pub const CONNECT_ERROR: c_int = 6;
    pub const UNREACHABLE: c_int = 7;
    pub const REJECTED: c_int = 8;
    pub const ESTABLISHED: c_int = 9;
    pub const DISCONNECTED: c_int = 10;
    pub const DEVICE_REMOVAL: c_int = 11;
    pub const MULTICAST_JOIN: c_int = 12;
    pub const MULTICAST_ERROR: c_int = 13;
    pub const TIMEWAIT_EXIT: c_int = 15;
    pub const ADDRINFO_RESOLVED: c_int = 16;
    pub const ADDRINFO_ERROR: c_int = 17;
    pub const USER: c_int = 18;
}

abi! {
    /// The GIDs of both ends and the partition key.
    struct RdmaIbAddr = "struct rdma_ib_addr" {
        sgid: IbvGid,
        dgid: IbvGid,
        pkey: u16,
    }

    /// The addresses of both ends.
    struct RdmaAddr = "struct rdma_addr" {
        src_storage: libc::sockaddr_storage,
        dst_storage: libc::sockaddr_storage,
        addr: RdmaIbAddr,
    }

    /// The route to the peer.
    struct RdmaRoute = "struct rdma_route" {
        addr: RdmaAddr,
        path_rec: *mut IbvSaPathRec,
        num_paths: c_int,
    }

    /// A channel that delivers events.
    struct RdmaEventChannel = "struct rdma_event_channel" {
        fd: c_int,
    }

    /// A connection identifier, which corresponds to a socket in TCP.
    struct RdmaCmId = "struct rdma_cm_id" {
        verbs: *mut IbvContext,
        channel: *mut RdmaEventChannel,
        context: *mut c_void,
        qp: *mut IbvQp,
        route: RdmaRoute,
        ps: c_int,
        port_num: u8,
        event: *mut RdmaCmEvent,
        send_cq_channel: *mut IbvCompChannel,
        send_cq: *mut IbvCq,
        recv_cq_channel: *mut IbvCompChannel,
        recv_cq: *mut IbvCq,
        srq: *mut IbvSrq,
        pd: *mut IbvPd,
        qp_type: c_int,
    }

    /// The parameters that one side sends when it connects or accepts.
    struct RdmaConnParam = "struct rdma_conn_param" {
        private_data: *const c_void,
        private_data_len: u8,
        responder_resources: u8,
        initiator_depth: u8,
        flow_control: u8,
        retry_count: u8,
        rnr_retry_count: u8,
        srq: u8,
        qp_num: u32,
    }

    /// The destination of datagrams.
    struct RdmaUdParam = "struct rdma_ud_param" {
        private_data: *const c_void,
        private_data_len: u8,
        ah_attr: IbvAhAttr,
        qp_num: u32,
        qkey: u32,
    }

    /// An event of the connection manager.
    struct RdmaCmEvent = "struct rdma_cm_event" {
        id: *mut RdmaCmId,
        listen_id: *mut RdmaCmId,
        event: c_int,
        status: c_int,
        param: EventParam,
    }

    /// The hints and results of `rdma_getaddrinfo`.
    struct RdmaAddrinfo = "struct rdma_addrinfo" {
        ai_flags: c_int,
        ai_family: c_int,
        ai_qp_type: c_int,
        ai_port_space: c_int,
        ai_src_len: libc::socklen_t,
        ai_dst_len: libc::socklen_t,
        ai_src_addr: *mut libc::sockaddr,
        ai_dst_addr: *mut libc::sockaddr,
        ai_src_canonname: *mut c_char,
        ai_dst_canonname: *mut c_char,
        ai_route_len: usize,
        ai_route: *mut c_void,
        ai_connect_len: usize,
        ai_connect: *mut c_void,
        ai_next: *mut RdmaAddrinfo,
    }

    /// The parameters for joining a multicast group.
    struct RdmaCmJoinMcAttrEx = "struct rdma_cm_join_mc_attr_ex" {
        comp_mask: u32,
        join_flags: u32,
        addr: *mut libc::sockaddr,
    }
}

/// The parameters of an event, by the port space of its identifier.
#[repr(C)]
#[derive(Copy, Clone)]
pub union EventParam {
    pub conn: RdmaConnParam,
    pub ud: RdmaUdParam,
    /// The argument of an event that the program wrote itself.
    pub arg: u64,
}
