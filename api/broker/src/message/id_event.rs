//! Events of ids: one packet each on an event channel.

use remora_cm::{ConnParam, EventKind};
use remora_host::codec::{Bounded, decode, encode};
use remora_wire::Qpn;
use remora_wire::mad::req::ConnectedService;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

use super::cm::SentParam;
use super::{MAX_PRIVATE, Posted};

/// An event of an id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdEvent {
    /// The id. Of a request it is a new one, which is the program's from now on.
    pub id: u64,
    /// The kind of the event.
    pub kind: IdEventKind,
    /// Private data of the peer's program, with zeros up to the length of the message's field; empty if no
    /// message came.
    #[serde(with = "Bounded::<MAX_PRIVATE>")]
    pub private_data: Vec<u8>,
}

/// The kind of an id's event.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IdEventKind {
    /// A peer asks a listener of the program for a connection: to be accepted or refused.
    ConnectRequest {
        /// The listener's id.
        listener: u64,
        /// The address and port that the peer asked.
        #[serde(with = "super::ip_port")]
        local: SocketAddr,
        /// The peer's address and port.
        #[serde(with = "super::ip_port")]
        remote: SocketAddr,
        /// The transport service of both queue pairs.
        #[serde(with = "super::service")]
        service: ConnectedService,
        /// Connection parameters that the peer proposes.
        #[serde(with = "SentParam")]
        param: ConnParam,
    },
    /// The peer accepted.
    ConnectResponse(#[serde(with = "SentParam")] ConnParam),
    /// The active side is ready, too.
    Established,
    /// The peer refused, for this reason (IBTA volume 1, table 108).
    Rejected(u16),
    /// The connection has ended, or the peer wants it to.
    Disconnected,
    /// The peer did not answer.
    Unreachable,
    /// No packet of the connection is on its way any more.
    TimewaitExit,
    /// A peer asks a listener of the program for its queue pair of datagrams.
    DatagramRequest {
        /// The listener's id.
        listener: u64,
        /// The address and port that the peer asked.
        #[serde(with = "super::ip_port")]
        local: SocketAddr,
        /// The peer's address and port.
        #[serde(with = "super::ip_port")]
        remote: SocketAddr,
    },
    /// The service's queue pair of datagrams, if the status is 0.
    DatagramResponse {
        /// 0, or why there is none (IBTA volume 1, chapter 12.11.2).
        status: u8,
        /// The queue pair.
        #[serde(with = "super::qpn")]
        qpn: Qpn,
        /// The Q_Key that datagrams must carry.
        qkey: u32,
    },
    /// An event that the program posted itself.
    Posted(Posted),
}

impl IdEvent {
    /// Bytes of a packet that has an event, at most.
    pub const MAX_LEN: usize = super::MAX_PACKET;

    /// Returns the packet.
    pub(crate) fn emit(&self) -> Vec<u8> {
        encode(self)
    }

    /// Returns the event in a packet that came by an event channel, or `None` if the packet holds no event.
    pub fn parse(packet: &[u8]) -> Option<IdEvent> {
        decode(packet)
    }

    /// Returns the event, or `None` for a request, which needs an id and addresses.
    pub(crate) fn of(id: u64, kind: &EventKind, private_data: &[u8]) -> Option<IdEvent> {
        let kind = match kind {
            EventKind::ConnectResponse(param) => IdEventKind::ConnectResponse(*param),
            EventKind::Established => IdEventKind::Established,
            EventKind::Rejected(rejection) => IdEventKind::Rejected(rejection.reason.0),
            EventKind::Disconnected(_) => IdEventKind::Disconnected,
            EventKind::Unreachable => IdEventKind::Unreachable,
            EventKind::TimewaitExit => IdEventKind::TimewaitExit,
            EventKind::SidrResponse { status, qpn, qkey } => {
                IdEventKind::DatagramResponse { status: status.0, qpn: *qpn, qkey: *qkey }
            }
            EventKind::ConnectRequest(_) | EventKind::SidrRequest { .. } => return None,
        };
        Some(IdEvent { id, kind, private_data: private_data.to_vec() })
    }
}
