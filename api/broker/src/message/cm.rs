//! Requests of programs to the communication manager, and its replies.

use remora_cm::{ConnParam, GidPair, QpAttributes};
use remora_host::codec::Bounded;
use remora_wire::mad::PortSpace;
use remora_wire::mad::req::ConnectedService;
use remora_wire::{Address, Psn, Qpn};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Maximum length of private data in bytes: that of an RTU or DREP.
pub(crate) const MAX_PRIVATE: usize = 224;

/// A request of a program that has opened the communication manager. `id` is an id of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CmRequest {
    /// An event channel: the reply brings its socket.
    CreateChannel,
    /// An id of connections or of datagrams, whose events come by this channel.
    CreateId {
        channel: u32,
        #[serde(with = "super::space")]
        space: PortSpace,
    },
    /// Binds an id to an address (unspecified: to all) and a port (0: any).
    Bind {
        id: u64,
        #[serde(with = "super::ip_port")]
        address: SocketAddr,
        reuses: bool,
    },
    /// Offers a service at the id's address and port.
    Listen { id: u64, backlog: u32 },
    /// Asks the service at an address and port for a connection, or which queue pair it has.
    Connect { id: u64, connect: Box<Connect> },
    /// Accepts the request that came with this id.
    Accept {
        id: u64,
        #[serde(with = "SentParam")]
        param: ConnParam,
        #[serde(with = "Bounded::<MAX_PRIVATE>")]
        private_data: Vec<u8>,
    },
    /// Refuses the request that came with this id.
    Reject {
        id: u64,
        #[serde(with = "Bounded::<MAX_PRIVATE>")]
        private_data: Vec<u8>,
    },
    /// The queue pair is ready to use: the answer to a response.
    Ready {
        id: u64,
        #[serde(with = "Bounded::<MAX_PRIVATE>")]
        private_data: Vec<u8>,
    },
    /// Ends a connection, or agrees that it ends.
    Disconnect {
        id: u64,
        #[serde(with = "Bounded::<MAX_PRIVATE>")]
        private_data: Vec<u8>,
    },
    /// The queue pair received something before the peer said that it is ready.
    Establish { id: u64 },
    /// Ends an id in any state.
    Destroy { id: u64 },
    /// The program has taken the event of the request that came with this id.
    Taken { id: u64 },
    /// The id's events come by another channel from now on.
    Migrate { id: u64, channel: u32 },
    /// Asks for the attributes that the id's queue pair needs.
    QpAttributes { id: u64 },
    /// Puts an event of the program's own into the id's channel.
    Post { id: u64, posted: Posted },
    /// Says which queue pair the datagram service has, to the request that came with this id.
    AcceptDatagrams {
        id: u64,
        #[serde(with = "super::qpn")]
        qpn: Qpn,
        qkey: u32,
        #[serde(with = "Bounded::<MAX_PRIVATE>")]
        private_data: Vec<u8>,
    },
}

/// The parameters of a connection request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connect {
    /// The peer's address and port.
    #[serde(with = "super::ip_port")]
    pub destination: SocketAddr,
    /// The transport service of both queue pairs.
    #[serde(with = "super::service")]
    pub service: ConnectedService,
    /// The code of the path MTU: 1 for 256 bytes to 5 for 4096.
    pub path_mtu: u8,
    /// The traffic class (of IPv4: the type of service).
    pub traffic_class: u8,
    /// Parameters of this side's queue pair. Ignored with datagrams, as service, path MTU and traffic class
    /// are.
    #[serde(with = "SentParam")]
    pub param: ConnParam,
    /// Up to 56 bytes; with datagrams, up to 180.
    #[serde(with = "Bounded::<MAX_PRIVATE>")]
    pub private_data: Vec<u8>,
}

/// An event that a program sends to a channel of its own: it is delivered in order with the others, and the
/// channel's descriptor becomes readable. The program chooses the numbers.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Posted {
    /// Number of the event.
    pub code: u32,
    /// Status of the event.
    pub status: i32,
    /// Number of the event's subject.
    pub subject: u64,
}

/// A reply of the communication manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CmReply {
    /// The communication manager accepts the program's requests.
    Opened,
    /// The identifier of a new event channel, sent with its socket.
    Channel(u32),
    Id(u64),
    /// Address to which the id is bound; also the reply to `Listen`.
    Bound(#[serde(with = "super::ip_port")] SocketAddr),
    Done,
    /// The errno of the failure.
    Failed(u16),
    QpAttributes(#[serde(with = "SentAttributes")] QpAttributes),
}

/// The fields of [`ConnParam`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "ConnParam")]
pub(super) struct SentParam {
    responder_resources: u8,
    initiator_depth: u8,
    flow_control: bool,
    retry_count: u8,
    rnr_retry_count: u8,
    srq: bool,
    #[serde(with = "super::qpn")]
    qpn: Qpn,
    #[serde(with = "super::psn")]
    starting_psn: Psn,
}

/// The fields of [`GidPair`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "GidPair")]
struct SentGids {
    #[serde(with = "super::gid")]
    local: Address,
    #[serde(with = "super::gid")]
    remote: Address,
    zone: u32,
}

/// The fields of [`QpAttributes`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "QpAttributes")]
struct SentAttributes {
    #[serde(with = "SentGids")]
    gids: GidPair,
    #[serde(with = "super::service")]
    service: ConnectedService,
    #[serde(with = "super::qpn")]
    remote_qpn: Qpn,
    #[serde(with = "super::psn")]
    rq_psn: Psn,
    #[serde(with = "super::psn")]
    sq_psn: Psn,
    path_mtu: u8,
    pkey: u16,
    flow_label: u32,
    traffic_class: u8,
    hop_limit: u8,
    sl: u8,
    timeout: u8,
    retry_count: u8,
    rnr_retry_count: u8,
    responder_resources: u8,
    initiator_depth: u8,
}

impl CmRequest {
    /// Returns the id that the request is about, or `None` for one that creates a channel or an id.
    pub(crate) fn id(&self) -> Option<u64> {
        match self {
            CmRequest::CreateChannel | CmRequest::CreateId { .. } => None,
            CmRequest::Bind { id, .. }
            | CmRequest::Listen { id, .. }
            | CmRequest::Connect { id, .. }
            | CmRequest::Accept { id, .. }
            | CmRequest::Reject { id, .. }
            | CmRequest::Ready { id, .. }
            | CmRequest::Disconnect { id, .. }
            | CmRequest::Establish { id }
            | CmRequest::Destroy { id }
            | CmRequest::Taken { id }
            | CmRequest::Migrate { id, .. }
            | CmRequest::AcceptDatagrams { id, .. }
            | CmRequest::Post { id, .. }
            | CmRequest::QpAttributes { id } => Some(*id),
        }
    }
}
