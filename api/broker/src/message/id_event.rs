//! What a program's ids get to know, as one packet on an event channel.
//!
//! ```text
//!  0  kind 8   1  id 64   9  fields of the kind   then private data, behind their length of 8 bits
//! ```

use remora_cm::{ConnParam, EventKind};
use remora_wire::Qpn;
use remora_wire::mad::req::ConnectedService;
use std::net::SocketAddr;

use super::{In, Out, Posted};

/// Something happened to an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdEvent {
    /// The id. Of a request it is a new one, which is the program's from now on.
    pub id: u64,
    /// What happened.
    pub kind: IdEventKind,
    /// What the peer's program said, with zeros behind it up to the length of the message's field; empty if
    /// no message came.
    pub private_data: Vec<u8>,
}

/// What happened to an id.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum IdEventKind {
    /// A peer asks a listener of the program for a connection: to be accepted or refused.
    ConnectRequest {
        /// The listener's id.
        listener: u64,
        /// The address and port that the peer asked.
        local: SocketAddr,
        /// The peer's address and port.
        remote: SocketAddr,
        /// The transport service of both queue pairs.
        service: ConnectedService,
        /// What the peer proposes.
        param: ConnParam,
    },
    /// The peer accepted.
    ConnectResponse(ConnParam),
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
        local: SocketAddr,
        /// The peer's address and port.
        remote: SocketAddr,
    },
    /// The service's queue pair of datagrams, if the status is 0.
    DatagramResponse {
        /// 0, or why there is none (IBTA volume 1, chapter 12.11.2).
        status: u8,
        /// The queue pair.
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

    /// The packet.
    pub(crate) fn emit(&self) -> Vec<u8> {
        let of = |kind| Out::kind(kind).u64(self.id);
        let out = match &self.kind {
            IdEventKind::ConnectRequest { listener, local, remote, service, param } => {
                of(1).u64(*listener).ip_port(*local).ip_port(*remote).u8(service.codes()[0]).param(param)
            }
            IdEventKind::ConnectResponse(param) => of(2).param(param),
            IdEventKind::Established => of(3),
            IdEventKind::Rejected(reason) => of(4).u16(*reason),
            IdEventKind::Disconnected => of(5),
            IdEventKind::Unreachable => of(6),
            IdEventKind::TimewaitExit => of(7),
            IdEventKind::DatagramRequest { listener, local, remote } => {
                of(8).u64(*listener).ip_port(*local).ip_port(*remote)
            }
            IdEventKind::DatagramResponse { status, qpn, qkey } => {
                of(9).u8(*status).u32(qpn.get()).u32(*qkey)
            }
            IdEventKind::Posted(posted) => of(10).posted(posted),
        };
        out.private_data(&self.private_data).0
    }

    /// The event in a packet that came by an event channel; `None`: it is none.
    pub fn parse(packet: &[u8]) -> Option<IdEvent> {
        let mut fields = In(packet);
        let (kind, id) = (fields.u8()?, fields.u64()?);
        let kind = match kind {
            1 => IdEventKind::ConnectRequest {
                listener: fields.u64()?,
                local: fields.ip_port()?,
                remote: fields.ip_port()?,
                service: fields.service()?,
                param: fields.param()?,
            },
            2 => IdEventKind::ConnectResponse(fields.param()?),
            3 => IdEventKind::Established,
            4 => IdEventKind::Rejected(fields.u16()?),
            5 => IdEventKind::Disconnected,
            6 => IdEventKind::Unreachable,
            7 => IdEventKind::TimewaitExit,
            8 => IdEventKind::DatagramRequest {
                listener: fields.u64()?,
                local: fields.ip_port()?,
                remote: fields.ip_port()?,
            },
            9 => IdEventKind::DatagramResponse {
                status: fields.u8()?,
                qpn: Qpn::new(fields.number()?),
                qkey: fields.u32()?,
            },
            10 => IdEventKind::Posted(fields.posted()?),
            _ => return None,
        };
        let private_data = fields.private_data()?;
        fields.end().map(|()| IdEvent { id, kind, private_data })
    }

    /// The event; `None`: it is a request, which needs an id and addresses.
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
