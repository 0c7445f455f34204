//! What programs get to know.

use remora_wire::mad::req::ConnectedService;
use remora_wire::mad::{INFO_LEN, RejectReason, ServiceId, SidrStatus, ip_cm};
use remora_wire::{Psn, Qpn};

use crate::{GidPair, PrivateData};

/// Something happened to an id.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CmEvent {
    /// The id's handle. Of a request it is the one that was given to [`Cm::receive`](crate::Cm::receive).
    pub handle: u64,
    /// What happened.
    pub kind: EventKind,
    /// What the peer's program said; [`PrivateData::NONE`] if no message came.
    pub private_data: PrivateData,
}

/// What happened.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A peer asks for a connection: to be accepted or refused.
    ConnectRequest(ConnectRequest),
    /// The peer accepted; the program makes its queue pair ready, then calls
    /// [`Cm::ready_to_use`](crate::Cm::ready_to_use).
    ConnectResponse(ConnParam),
    /// The active side is ready, too.
    Established,
    /// The peer refused. The handle is free, unless the id is in timewait.
    Rejected(Rejection),
    /// The connection has ended, or the peer wants it to: then [`Cm::disconnect`](crate::Cm::disconnect)
    /// answers.
    Disconnected(Cause),
    /// The peer did not answer. The handle is free, unless the id is in timewait.
    Unreachable,
    /// No packet of the connection is on its way any more. The handle is free.
    TimewaitExit,
    /// A peer asks for a datagram service.
    SidrRequest {
        /// The handle of the listener.
        listener: u64,
        /// Both ends.
        gids: GidPair,
        /// The service.
        service_id: ServiceId,
        /// What stood first in the private data, with services of the RDMA IP CM service.
        ip: Option<ip_cm::Repr>,
        /// The partition.
        pkey: u16,
    },
    /// The answer to such a question. The handle is free.
    SidrResponse {
        /// [`SidrStatus::VALID`], or why there is no such service.
        status: SidrStatus,
        /// The queue pair to which datagrams go.
        qpn: Qpn,
        /// The key that datagrams must carry.
        qkey: u32,
    },
}

/// A request for a connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ConnectRequest {
    /// The handle of the listener.
    pub listener: u64,
    /// Both ends.
    pub gids: GidPair,
    /// The service.
    pub service_id: ServiceId,
    /// What stood first in the private data, with services of the RDMA IP CM service.
    pub ip: Option<ip_cm::Repr>,
    /// The transport service of both queue pairs.
    pub service: ConnectedService,
    /// What the peer proposes.
    pub param: ConnParam,
}

/// What one side says of its queue pair, turned round: as the other side may use it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ConnParam {
    /// READs and atomics that this side should hold: the peer's initiator depth.
    pub responder_resources: u8,
    /// READs and atomics that this side may have outstanding: the peer's responder resources.
    pub initiator_depth: u8,
    /// Does the peer's queue pair do end-to-end flow control?
    pub flow_control: bool,
    /// Times that this side's queue pair should send again without an answer; 0 in a response.
    pub retry_count: u8,
    /// Times that this side's queue pair should send again after "receiver not ready".
    pub rnr_retry_count: u8,
    /// Has the peer's queue pair a shared receive queue?
    pub srq: bool,
    /// The peer's queue pair.
    pub qpn: Qpn,
    /// The PSN that this side's queue pair sends first.
    pub starting_psn: Psn,
}

/// Why a peer refused.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The reason.
    pub reason: RejectReason,
    /// What the peer would accept, as the reason says.
    pub info: [u8; INFO_LEN],
    /// Bytes of it that count.
    pub info_len: u8,
}

/// What ended a connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The peer asks for it, and waits for the answer.
    Requested,
    /// The peer agreed to this side's request, or asked at the same time.
    Agreed,
    /// The peer does not answer this side's request.
    Unanswered,
    /// The peer says that it has no such connection.
    Refused,
}
