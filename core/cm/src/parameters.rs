//! What programs say when they connect, accept, refuse and listen, and what they get for their queue pairs.

use remora_wire::mad::req::ConnectedService;
use remora_wire::mad::{RejectReason, ServiceId, SidrStatus, ip_cm, path};
use remora_wire::{Address, Psn, Qpn};

use crate::CmError;

/// The code of the time that a packet lives at most, unless a program says another: 0.27 s, as Linux has it
/// since it found 1.07 s too long for RoCE. A lost packet without a NAK is sent again after twice that time.
const PACKET_LIFE_TIME: u8 = 16;

/// Both ends of a path, as this side sees them.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GidPair {
    /// An address of this adapter.
    pub local: Address,
    /// The peer's.
    pub remote: Address,
    /// The interface of this adapter's address if that is link-local, by this host's number; else 0.
    pub zone: u32,
}

impl GidPair {
    /// Two addresses that need no interface.
    pub const fn new(local: Address, remote: Address) -> GidPair {
        GidPair { local, remote, zone: 0 }
    }

    /// Can one host have each of them?
    pub(crate) fn are_hosts(&self) -> bool {
        self.local.is_host() && self.remote.is_host()
    }
}

/// The path of a MAD that leaves.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct MadPath {
    /// Both ends.
    pub gids: GidPair,
    /// The traffic class (of IPv4: the type of service) of the path that the REQ names, or that the program
    /// gave a question for a datagram service. Other MADs have 0.
    pub traffic_class: u8,
}

/// A service that a program offers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The service.
    pub service_id: ServiceId,
    /// At this address only; `None`: at all addresses that have no listener of their own for the service.
    pub address: Option<Address>,
    /// The interface of a link-local address; else 0.
    pub zone: u32,
    /// Requests that wait for the program at most, 1 or more: until it takes their event ([`Cm::taken`]) or
    /// answers. Further requests are refused.
    ///
    /// [`Cm::taken`]: crate::Cm::taken
    pub backlog: u32,
}

/// What the active side asks for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ConnectParam<'a> {
    /// Both ends, of the messages and of the queue pairs.
    pub gids: GidPair,
    /// The service.
    pub service_id: ServiceId,
    /// What stands first in the private data: always with services of the RDMA IP CM service.
    pub ip: Option<ip_cm::Repr>,
    /// This side's queue pair.
    pub qpn: Qpn,
    /// The transport service of both queue pairs; reliable datagrams are refused.
    pub service: ConnectedService,
    /// The PSN of the first packet that the peer's queue pair sends.
    pub starting_psn: Psn,
    /// The code of the path MTU: 1 for 256 bytes to 5 for 4096.
    pub path_mtu: u8,
    /// The partition.
    pub pkey: u16,
    /// The flow label of both queue pairs' packets, 20 bits.
    pub flow_label: u32,
    /// The traffic class (of IPv4: the type of service).
    pub traffic_class: u8,
    /// Routers that a packet may pass.
    pub hop_limit: u8,
    /// Service level, 4 bits.
    pub sl: u8,
    /// The code of the time that a packet lives at most, 0 to 30.
    pub packet_life_time: u8,
    /// READs and atomics from the peer that this side's queue pair can hold.
    pub responder_resources: u8,
    /// READs and atomics that this side's queue pair would have outstanding.
    pub initiator_depth: u8,
    /// Does this side's queue pair do end-to-end flow control?
    pub flow_control: bool,
    /// Times that a queue pair sends again without an answer, 3 bits.
    pub retry_count: u8,
    /// Times that the peer's queue pair sends again after "receiver not ready", 3 bits.
    pub rnr_retry_count: u8,
    /// Has this side's queue pair a shared receive queue?
    pub srq: bool,
    /// The code of the time within which either side should answer, 5 bits.
    pub response_timeout: u8,
    /// Times that either side repeats a message without an answer, 4 bits.
    pub max_cm_retries: u8,
    /// Up to 92 bytes, or 56 behind [`ConnectParam::ip`].
    pub private_data: &'a [u8],
}

impl ConnectParam<'_> {
    /// A reliable connection with the values that `rdma_cm` uses on RoCE.
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

    /// Does each value fit its field?
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

    /// The primary path of the REQ.
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

/// What the passive side answers.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceptParam<'a> {
    /// This side's queue pair.
    pub qpn: Qpn,
    /// The PSN of the first packet that the peer's queue pair sends.
    pub starting_psn: Psn,
    /// READs and atomics from the peer that this side's queue pair can hold.
    pub responder_resources: u8,
    /// READs and atomics that this side's queue pair has outstanding at most.
    pub initiator_depth: u8,
    /// Does this side's queue pair do end-to-end flow control?
    pub flow_control: bool,
    /// Times that the peer's queue pair sends again after "receiver not ready", 3 bits.
    pub rnr_retry_count: u8,
    /// Has this side's queue pair a shared receive queue?
    pub srq: bool,
    /// Up to 196 bytes.
    pub private_data: &'a [u8],
}

/// Why a program refuses.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RejectParam<'a> {
    /// The reason; [`RejectReason::CONSUMER`] is that of `rdma_reject`.
    pub reason: RejectReason,
    /// What the program would accept, as the reason says: up to 72 bytes.
    pub info: &'a [u8],
    /// Up to 148 bytes.
    pub private_data: &'a [u8],
}

impl RejectParam<'_> {
    /// A refusal that says no more than why.
    pub const fn new(reason: RejectReason) -> RejectParam<'static> {
        RejectParam { reason, info: &[], private_data: &[] }
    }
}

/// The question which queue pair has a datagram service.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SidrRequestParam<'a> {
    /// Both ends of the messages.
    pub gids: GidPair,
    /// The service.
    pub service_id: ServiceId,
    /// What stands first in the private data: always with services of the RDMA IP CM service.
    pub ip: Option<ip_cm::Repr>,
    /// The partition.
    pub pkey: u16,
    /// The traffic class of the question (of IPv4: the type of service).
    pub traffic_class: u8,
    /// The code of the time within which the peer should answer, 5 bits.
    pub response_timeout: u8,
    /// Times that the question is repeated, 4 bits.
    pub max_cm_retries: u8,
    /// Up to 216 bytes, or 180 behind [`SidrRequestParam::ip`].
    pub private_data: &'a [u8],
}

impl SidrRequestParam<'_> {
    /// A question with the values that `rdma_cm` uses on RoCE.
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

    /// Does each value fit its field?
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

/// The answer to such a question.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SidrReplyParam<'a> {
    /// [`SidrStatus::VALID`], or why there is no such service.
    pub status: SidrStatus,
    /// The queue pair to which datagrams go.
    pub qpn: Qpn,
    /// The key that datagrams must carry.
    pub qkey: u32,
    /// Up to 136 bytes.
    pub private_data: &'a [u8],
}

/// What a queue pair needs on its way to RTS, as `rdma_init_qp_attr` hands it out.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct QpAttributes {
    /// Both ends of the queue pairs' packets.
    pub gids: GidPair,
    /// The transport service.
    pub service: ConnectedService,
    /// The peer's queue pair.
    pub remote_qpn: Qpn,
    /// The PSN that this side's queue pair expects first.
    pub rq_psn: Psn,
    /// The PSN that this side's queue pair sends first.
    pub sq_psn: Psn,
    /// The code of the path MTU: 1 for 256 bytes to 5 for 4096.
    pub path_mtu: u8,
    /// The partition.
    pub pkey: u16,
    /// The flow label, 20 bits.
    pub flow_label: u32,
    /// The traffic class (of IPv4: the type of service).
    pub traffic_class: u8,
    /// Routers that a packet may pass.
    pub hop_limit: u8,
    /// Service level, 4 bits.
    pub sl: u8,
    /// The code of the local ACK timeout.
    pub timeout: u8,
    /// Times that it sends again without an answer.
    pub retry_count: u8,
    /// Times that it sends again after "receiver not ready".
    pub rnr_retry_count: u8,
    /// READs and atomics from the peer that it holds (`max_dest_rd_atomic`).
    pub responder_resources: u8,
    /// READs and atomics that it has outstanding (`max_rd_atomic`).
    pub initiator_depth: u8,
}
