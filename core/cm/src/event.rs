//! Events that the manager reports to programs.

use remora_wire::mad::req::ConnectedService;
use remora_wire::mad::{INFO_LEN, RejectReason, ServiceId, SidrStatus, ip_cm};
use remora_wire::{Psn, Qpn};

use crate::{GidPair, PrivateData};

/// An event of an id.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CmEvent {
    /// Handle of the id. For a request, the handle that was passed to [`Cm::receive`](crate::Cm::receive).
    pub handle: u64,
    /// The kind of event and its data.
    pub kind: EventKind,
    /// Private data from the peer's program; [`PrivateData::NONE`] if the event was not caused by a
    /// message.
    pub private_data: PrivateData,
}

/// The kinds of events.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A peer requests a connection, which the program must accept or refuse.
    ConnectRequest(ConnectRequest),
    /// The peer has accepted. The program makes its queue pair ready, then calls
    /// [`Cm::ready_to_use`](crate::Cm::ready_to_use).
    ConnectResponse(ConnParam),
    /// The active side is ready as well.
    Established,
    /// The peer has refused. The handle is free, unless the id is in TIMEWAIT.
    Rejected(Rejection),
    /// The connection has ended. With [`Cause::Requested`], the peer wants to end it, and
    /// [`Cm::disconnect`](crate::Cm::disconnect) answers.
    Disconnected(Cause),
    /// The peer did not answer. The handle is free, unless the id is in TIMEWAIT.
    Unreachable,
    /// The time after which no packet of the connection can be in flight is over. The handle is free.
    TimewaitExit,
    /// A peer asks for the queue pair of a datagram service.
    SidrRequest {
        /// Handle of the listener.
        listener: u64,
        /// Addresses of both ends.
        gids: GidPair,
        /// The service id.
        service_id: ServiceId,
        /// The IP addressing header of the private data; present for services of the RDMA IP CM service
        /// only.
        ip: Option<ip_cm::Repr>,
        /// The partition key.
        pkey: u16,
    },
    /// A peer has answered a request for a datagram service. The handle is free.
    SidrResponse {
        /// [`SidrStatus::VALID`], or the reason why the service is not available.
        status: SidrStatus,
        /// The queue pair that accepts datagrams of the service.
        qpn: Qpn,
        /// The queue key that datagrams must carry.
        qkey: u32,
    },
}

/// A request for a connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ConnectRequest {
    /// Handle of the listener.
    pub listener: u64,
    /// Addresses of both ends.
    pub gids: GidPair,
    /// The service id.
    pub service_id: ServiceId,
    /// The IP addressing header of the private data; present for services of the RDMA IP CM service only.
    pub ip: Option<ip_cm::Repr>,
    /// The transport service of both queue pairs.
    pub service: ConnectedService,
    /// The parameters that the peer proposes.
    pub param: ConnParam,
}

/// The parameters of the peer's queue pair, converted to this side's point of view.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ConnParam {
    /// Number of READs and atomics that this side should accept at a time: the peer's initiator depth.
    pub responder_resources: u8,
    /// Number of READs and atomics that this side may have outstanding: the peer's responder resources.
    pub initiator_depth: u8,
    /// True if the peer's queue pair uses end-to-end flow control.
    pub flow_control: bool,
    /// Number of retries of this side's queue pair without an answer; 0 in a response.
    pub retry_count: u8,
    /// Number of retries of this side's queue pair after "receiver not ready".
    pub rnr_retry_count: u8,
    /// True if the peer's queue pair has a shared receive queue.
    pub srq: bool,
    /// The peer's queue pair number.
    pub qpn: Qpn,
    /// The PSN of the first packet that this side's queue pair sends.
    pub starting_psn: Psn,
}

/// The peer's refusal.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The reason code.
    pub reason: RejectReason,
    /// An acceptable value for the refused field; its format depends on the reason.
    pub info: [u8; INFO_LEN],
    /// Number of valid bytes in `info`.
    pub info_len: u8,
}

/// The reason why a connection ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The peer asked to end the connection, and waits for the answer.
    Requested,
    /// The peer agreed to this side's request, or asked at the same time.
    Agreed,
    /// The peer did not answer this side's request.
    Unanswered,
    /// The peer does not have such a connection.
    Refused,
}
