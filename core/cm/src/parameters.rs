//! The parameters of connect, accept, reject, listen and service id resolution, and the resulting
//! attributes of queue pairs.

use remora_wire::mad::req::ConnectedService;
use remora_wire::mad::{RejectReason, ServiceId, SidrStatus, ip_cm, path};
use remora_wire::{Address, Psn, Qpn};

use crate::CmError;

/// Code of the default maximum packet life time: 0.27 s. Linux uses this value since 1.07 s proved too long
/// for RoCE. A lost packet without a NAK is retransmitted after twice this time.
const PACKET_LIFE_TIME: u8 = 16;

/// The addresses of both ends of a path, from this side's point of view.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GidPair {
    /// Address of this adapter.
    pub local: Address,
    /// Address of the peer.
    pub remote: Address,
    /// Interface index on this host if the local address is link-local; otherwise 0.
    pub zone: u32,
}

impl GidPair {
    /// Creates a pair of addresses that need no interface index.
    pub const fn new(local: Address, remote: Address) -> GidPair {
        GidPair { local, remote, zone: 0 }
    }

    /// Returns whether each of them can be the address of one host.
    pub(crate) fn are_hosts(&self) -> bool {
        self.local.is_host() && self.remote.is_host()
    }
}

/// The path of a MAD.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct MadPath {
    /// Addresses of both ends.
    pub gids: GidPair,
    /// The traffic class (of IPv4: the type of service). MADs of a connection have that of the path which
    /// its REQ names, a SIDR_REQ has that of its program, and other answers have that of the MAD which they
    /// answer.
    pub traffic_class: u8,
}

/// A path with traffic class 0.
impl From<GidPair> for MadPath {
    fn from(gids: GidPair) -> MadPath {
        MadPath { gids, traffic_class: 0 }
    }
}

/// The parameters of a listener.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The service id.
    pub service_id: ServiceId,
    /// Address to listen at; `None` for all addresses that have no listener of their own for the service.
    pub address: Option<Address>,
    /// Interface index of a link-local address; otherwise 0.
    pub zone: u32,
    /// Maximum number of requests that wait for the program, 1 or more. A request waits until the program
    /// takes its event ([`Cm::taken`]) or answers. Further requests are refused.
    ///
    /// [`Cm::taken`]: crate::Cm::taken
    pub backlog: u32,
}

/// The parameters of a connection request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ConnectParam<'a> {
    /// Addresses of both ends, for messages and queue pairs.
    pub gids: GidPair,
    /// The service id.
    pub service_id: ServiceId,
    /// The IP addressing header of the private data; required for services of the RDMA IP CM service,
    /// absent for others.
    pub ip: Option<ip_cm::Repr>,
    /// The queue pair number of this side.
    pub qpn: Qpn,
    /// The transport service of both queue pairs; reliable datagram (RD) is refused.
    pub service: ConnectedService,
    /// The PSN of the first packet that the peer's queue pair sends.
    pub starting_psn: Psn,
    /// Code of the path MTU: 1 for 256 bytes to 5 for 4096 bytes.
    pub path_mtu: u8,
    /// The partition key.
    pub pkey: u16,
    /// Flow label of packets of both queue pairs, 20 bits.
    pub flow_label: u32,
    /// Traffic class (IPv4: the type of service).
    pub traffic_class: u8,
    /// Maximum number of routers that a packet may pass.
    pub hop_limit: u8,
    /// Service level, 4 bits.
    pub sl: u8,
    /// Code of the maximum packet life time, 0 to 30.
    pub packet_life_time: u8,
    /// Number of READs and atomics from the peer that this side's queue pair accepts at a time.
    pub responder_resources: u8,
    /// Number of READs and atomics that this side's queue pair wants to have outstanding.
    pub initiator_depth: u8,
    /// True if this side's queue pair uses end-to-end flow control.
    pub flow_control: bool,
    /// Number of retries of a queue pair without an answer, 3 bits.
    pub retry_count: u8,
    /// Number of retries of the peer's queue pair after "receiver not ready", 3 bits.
    pub rnr_retry_count: u8,
    /// True if this side's queue pair has a shared receive queue.
    pub srq: bool,
    /// Code of the time within which either side should answer a message, 5 bits.
    pub response_timeout: u8,
    /// Number of times that either side repeats an unanswered message, 4 bits.
    pub max_cm_retries: u8,
    /// Private data of the program: up to 92 bytes, or up to 56 after [`ConnectParam::ip`].
    pub private_data: &'a [u8],
}

impl ConnectParam<'_> {
    /// Creates a request for a reliable connection, with the values that `rdma_cm` uses on RoCE.
    pub const fn new(gids: GidPair, service_id: ServiceId, qpn: Qpn) -> ConnectParam<'static> {
        ConnectParam {
            gids,
            service_id,
            ip: None,
            qpn,
            service: ConnectedService::Rc,
            starting_psn: Psn::new(0),
            path_mtu: 3,
            pkey: 0xffff,
            flow_label: 0,
            traffic_class: 0,
            hop_limit: 64,
            sl: 0,
            packet_life_time: PACKET_LIFE_TIME,
            responder_resources: 1,
            initiator_depth: 1,
            flow_control: false,
            retry_count: 7,
            rnr_retry_count: 7,
            srq: false,
            response_timeout: 20,
            max_cm_retries: 15,
            private_data: &[],
        }
    }

    /// Checks that each value fits its field.
    pub(crate) fn check(&self) -> Result<(), CmError> {
        let header = if self.ip.is_some() { ip_cm::LEN } else { 0 };
        let fits = self.gids.are_hosts()
            && (1..=5).contains(&self.path_mtu)
            && self.flow_label < 1 << 20
            && self.sl < 16
            && self.packet_life_time < 31
            && self.retry_count < 8
            && self.rnr_retry_count < 8
            && self.response_timeout < 32
            && self.max_cm_retries < 16
            && self.service != ConnectedService::Rd
            && self.ip.is_some() == self.service_id.is_rdma_ip()
            && header + self.private_data.len() <= remora_wire::mad::req::PRIVATE_LEN;
        if fits { Ok(()) } else { Err(CmError::OutOfRange) }
    }

    /// Returns the primary path of the REQ.
    pub(crate) fn path(&self, ack_timeout: u8) -> path::Repr {
        path::Repr {
            local_lid: path::PERMISSIVE_LID,
            remote_lid: path::PERMISSIVE_LID,
            local_gid: self.gids.local,
            remote_gid: self.gids.remote,
            flow_label: self.flow_label,
            rate: 0,
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            sl: self.sl,
            subnet_local: false,
            ack_timeout,
        }
    }
}

/// The parameters with which the passive side accepts.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceptParam<'a> {
    /// The queue pair number of this side.
    pub qpn: Qpn,
    /// The PSN of the first packet that the peer's queue pair sends.
    pub starting_psn: Psn,
    /// Number of READs and atomics from the peer that this side's queue pair accepts at a time.
    pub responder_resources: u8,
    /// Maximum number of READs and atomics that this side's queue pair has outstanding.
    pub initiator_depth: u8,
    /// True if this side's queue pair uses end-to-end flow control.
    pub flow_control: bool,
    /// Number of retries of the peer's queue pair after "receiver not ready", 3 bits.
    pub rnr_retry_count: u8,
    /// True if this side's queue pair has a shared receive queue.
    pub srq: bool,
    /// Private data of the program: up to 196 bytes.
    pub private_data: &'a [u8],
}

/// The parameters of a refusal.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RejectParam<'a> {
    /// The reason code; [`RejectReason::CONSUMER`] is the one that `rdma_reject` uses.
    pub reason: RejectReason,
    /// An acceptable value for the refused field, in the reason's format: up to 72 bytes.
    pub info: &'a [u8],
    /// Private data of the program: up to 148 bytes.
    pub private_data: &'a [u8],
}

impl RejectParam<'_> {
    /// Creates a refusal without additional information.
    pub const fn new(reason: RejectReason) -> RejectParam<'static> {
        RejectParam { reason, info: &[], private_data: &[] }
    }
}

/// The parameters of a service id resolution: a request for the queue pair of a datagram service.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SidrRequestParam<'a> {
    /// Addresses of both ends of the messages.
    pub gids: GidPair,
    /// The service id.
    pub service_id: ServiceId,
    /// The IP addressing header of the private data; required for services of the RDMA IP CM service,
    /// absent for others.
    pub ip: Option<ip_cm::Repr>,
    /// The partition key.
    pub pkey: u16,
    /// Traffic class of the request (IPv4: the type of service).
    pub traffic_class: u8,
    /// Code of the time within which the peer should answer, 5 bits.
    pub response_timeout: u8,
    /// Number of times that the request is repeated, 4 bits.
    pub max_cm_retries: u8,
    /// Private data of the program: up to 216 bytes, or up to 180 after [`SidrRequestParam::ip`].
    pub private_data: &'a [u8],
}

impl SidrRequestParam<'_> {
    /// Creates a request with the values that `rdma_cm` uses on RoCE.
    pub const fn new(gids: GidPair, service_id: ServiceId) -> SidrRequestParam<'static> {
        SidrRequestParam {
            gids,
            service_id,
            ip: None,
            pkey: 0xffff,
            traffic_class: 0,
            response_timeout: 20,
            max_cm_retries: 15,
            private_data: &[],
        }
    }

    /// Checks that each value fits its field.
    pub(crate) fn check(&self) -> Result<(), CmError> {
        let header = if self.ip.is_some() { ip_cm::LEN } else { 0 };
        let fits = self.gids.are_hosts()
            && self.response_timeout < 32
            && self.max_cm_retries < 16
            && self.ip.is_some() == self.service_id.is_rdma_ip()
            && header + self.private_data.len() <= remora_wire::mad::sidr_req::PRIVATE_LEN;
        if fits { Ok(()) } else { Err(CmError::OutOfRange) }
    }
}

/// The answer to a service id resolution.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SidrReplyParam<'a> {
    /// [`SidrStatus::VALID`], or the reason why the service is not available.
    pub status: SidrStatus,
    /// The queue pair that accepts datagrams of the service.
    pub qpn: Qpn,
    /// The queue key that datagrams must carry.
    pub qkey: u32,
    /// Private data of the program: up to 136 bytes.
    pub private_data: &'a [u8],
}

/// The attributes that a queue pair needs on its way to RTS, as `rdma_init_qp_attr` returns them.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct QpAttributes {
    /// Addresses of both ends of the queue pairs' packets.
    pub gids: GidPair,
    /// The transport service.
    pub service: ConnectedService,
    /// The peer's queue pair number.
    pub remote_qpn: Qpn,
    /// The PSN that this side's queue pair expects first.
    pub rq_psn: Psn,
    /// The PSN that this side's queue pair sends first.
    pub sq_psn: Psn,
    /// Code of the path MTU: 1 for 256 bytes to 5 for 4096 bytes.
    pub path_mtu: u8,
    /// The partition key.
    pub pkey: u16,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Traffic class (IPv4: the type of service).
    pub traffic_class: u8,
    /// Maximum number of routers that a packet may pass.
    pub hop_limit: u8,
    /// Service level, 4 bits.
    pub sl: u8,
    /// Code of the local ACK timeout.
    pub timeout: u8,
    /// Number of retries without an answer.
    pub retry_count: u8,
    /// Number of retries after "receiver not ready".
    pub rnr_retry_count: u8,
    /// Number of READs and atomics from the peer that the queue pair accepts at a time
    /// (`max_dest_rd_atomic`).
    pub responder_resources: u8,
    /// Number of READs and atomics that the queue pair may have outstanding (`max_rd_atomic`).
    pub initiator_depth: u8,
}
