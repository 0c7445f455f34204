//! What programs ask of the communication manager, and its replies: the kinds from [`RESERVED`] on.
//!
//! [`RESERVED`]: super::RESERVED

use remora_cm::{ConnParam, GidPair, QpAttributes};
use remora_wire::mad::PortSpace;
use remora_wire::mad::req::ConnectedService;
use remora_wire::{Address, Psn, Qpn};
use std::net::SocketAddr;

use super::{In, Out};

/// Bytes of private data at most: of a RTU or DREP.
pub(crate) const MAX_PRIVATE: usize = 224;

/// A request of a program that has opened the communication manager. `id` is one of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CmRequest {
    /// An event channel: the reply brings its socket.
    CreateChannel,
    /// An id of connections or of datagrams, whose events come by this channel.
    CreateId { channel: u32, space: PortSpace },
    /// Binds an id to an address (unspecified: to all) and a port (0: any).
    Bind { id: u64, address: SocketAddr, reuses: bool },
    /// Offers a service at the id's address and port.
    Listen { id: u64, backlog: u32 },
    /// Asks the service at an address and port for a connection, or which queue pair it has.
    Connect { id: u64, connect: Box<Connect> },
    /// Accepts the request that came with this id.
    Accept { id: u64, param: ConnParam, private_data: Vec<u8> },
    /// Refuses it.
    Reject { id: u64, private_data: Vec<u8> },
    /// The queue pair is ready to use: the answer to a response.
    Ready { id: u64, private_data: Vec<u8> },
    /// Ends a connection, or agrees that it ends.
    Disconnect { id: u64, private_data: Vec<u8> },
    /// The queue pair received something before the peer said that it is ready.
    Establish { id: u64 },
    /// Ends an id in any state.
    Destroy { id: u64 },
    /// The program has taken the event of the request that came with this id.
    Taken { id: u64 },
    /// The id's events come by another channel from now on.
    Migrate { id: u64, channel: u32 },
    /// What the id's queue pair needs.
    QpAttributes { id: u64 },
    /// Puts an event of the program's own into the id's channel.
    Post { id: u64, posted: Posted },
    /// Says which queue pair the datagram service has, to the request that came with this id.
    AcceptDatagrams { id: u64, qpn: Qpn, qkey: u32, private_data: Vec<u8> },
}

/// What the active side asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    /// The peer's address and port.
    pub destination: SocketAddr,
    /// The transport service of both queue pairs.
    pub service: ConnectedService,
    /// The code of the path MTU: 1 for 256 bytes to 5 for 4096.
    pub path_mtu: u8,
    /// The traffic class (of IPv4: the type of service).
    pub traffic_class: u8,
    /// Of this side's queue pair; with datagrams it means nothing, as service, path MTU and traffic class do.
    pub param: ConnParam,
    /// Up to 56 bytes; with datagrams, up to 180.
    pub private_data: Vec<u8>,
}

/// An event that a program sends to a channel of its own, so that it comes in its turn and the channel's
/// descriptor shows it. The numbers are the program's.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Posted {
    /// Which event.
    pub code: u32,
    /// How it ended.
    pub status: i32,
    /// What it is about.
    pub subject: u64,
}

/// A reply of the communication manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CmReply {
    /// The communication manager is at the program's service.
    Opened,
    /// With the socket.
    Channel(u32),
    Id(u64),
    /// Where the id is bound; with `Listen`, too.
    Bound(SocketAddr),
    Done,
    /// The errno.
    Failed(u16),
    QpAttributes(QpAttributes),
}

impl Out {
    pub(super) fn ip_port(self, address: SocketAddr) -> Out {
        self.address(address).u16(address.port())
    }

    pub(super) fn private_data(self, data: &[u8]) -> Out {
        let data = &data[..data.len().min(MAX_PRIVATE)];
        let mut out = self.u8(data.len() as u8);
        out.0.extend(data);
        out
    }

    pub(super) fn posted(self, posted: &Posted) -> Out {
        self.u32(posted.code).u32(posted.status as u32).u64(posted.subject)
    }

    pub(super) fn param(self, param: &ConnParam) -> Out {
        self.u8(param.responder_resources)
            .u8(param.initiator_depth)
            .u8(param.flow_control.into())
            .u8(param.retry_count)
            .u8(param.rnr_retry_count)
            .u8(param.srq.into())
            .u32(param.qpn.get())
            .u32(param.starting_psn.get())
    }

    fn gid(mut self, gid: Address) -> Out {
        self.0.extend(gid.0);
        self
    }
}

impl In<'_> {
    pub(super) fn ip_port(&mut self) -> Option<SocketAddr> {
        let mut address = self.address()?;
        address.set_port(self.u16()?);
        Some(address)
    }

    pub(super) fn private_data(&mut self) -> Option<Vec<u8>> {
        let len = usize::from(self.u8()?);
        let (data, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        (len <= MAX_PRIVATE).then(|| data.to_vec())
    }

    fn space(&mut self) -> Option<PortSpace> {
        let number = self.u8()?;
        [PortSpace::Tcp, PortSpace::Udp, PortSpace::Ib].into_iter().find(|space| *space as u8 == number)
    }

    pub(super) fn posted(&mut self) -> Option<Posted> {
        Some(Posted { code: self.u32()?, status: self.u32()? as i32, subject: self.u64()? })
    }

    pub(super) fn number(&mut self) -> Option<u32> {
        self.u32().filter(|number| *number < 1 << 24)
    }

    pub(super) fn param(&mut self) -> Option<ConnParam> {
        Some(ConnParam {
            responder_resources: self.u8()?,
            initiator_depth: self.u8()?,
            flow_control: self.flag()?,
            retry_count: self.u8()?,
            rnr_retry_count: self.u8()?,
            srq: self.flag()?,
            qpn: Qpn::new(self.number()?),
            starting_psn: Psn::new(self.number()?),
        })
    }

    pub(super) fn service(&mut self) -> Option<ConnectedService> {
        let known = [ConnectedService::Rc, ConnectedService::Uc, ConnectedService::Xrc];
        let code = self.u8()?;
        known.into_iter().find(|service| service.codes()[0] == code)
    }

    fn attributes(&mut self) -> Option<QpAttributes> {
        let gids = GidPair { local: Address(self.take()?), remote: Address(self.take()?), zone: self.u32()? };
        Some(QpAttributes {
            gids,
            service: self.service()?,
            remote_qpn: Qpn::new(self.number()?),
            rq_psn: Psn::new(self.number()?),
            sq_psn: Psn::new(self.number()?),
            path_mtu: self.u8()?,
            pkey: self.u16()?,
            flow_label: self.u32()?,
            traffic_class: self.u8()?,
            hop_limit: self.u8()?,
            sl: self.u8()?,
            timeout: self.u8()?,
            retry_count: self.u8()?,
            rnr_retry_count: self.u8()?,
            responder_resources: self.u8()?,
            initiator_depth: self.u8()?,
        })
    }
}

fn attributes(out: Out, of: &QpAttributes) -> Out {
    out.gid(of.gids.local)
        .gid(of.gids.remote)
        .u32(of.gids.zone)
        .u8(of.service.codes()[0])
        .u32(of.remote_qpn.get())
        .u32(of.rq_psn.get())
        .u32(of.sq_psn.get())
        .u8(of.path_mtu)
        .u16(of.pkey)
        .u32(of.flow_label)
        .u8(of.traffic_class)
        .u8(of.hop_limit)
        .u8(of.sl)
        .u8(of.timeout)
        .u8(of.retry_count)
        .u8(of.rnr_retry_count)
        .u8(of.responder_resources)
        .u8(of.initiator_depth)
}

impl CmRequest {
    /// The id that it is about, if it is about one.
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

    pub(super) fn emit(&self) -> Out {
        let of = |kind, id: &u64| Out::kind(kind).u64(*id);
        match self {
            CmRequest::CreateChannel => Out::kind(0x41),
            CmRequest::CreateId { channel, space } => Out::kind(0x42).u32(*channel).u8(*space as u8),
            CmRequest::Bind { id, address, reuses } => of(0x43, id).ip_port(*address).u8((*reuses).into()),
            CmRequest::Listen { id, backlog } => of(0x44, id).u32(*backlog),
            CmRequest::Connect { id, connect } => of(0x45, id)
                .ip_port(connect.destination)
                .u8(connect.service.codes()[0])
                .u8(connect.path_mtu)
                .u8(connect.traffic_class)
                .param(&connect.param)
                .private_data(&connect.private_data),
            CmRequest::Accept { id, param, private_data } => {
                of(0x46, id).param(param).private_data(private_data)
            }
            CmRequest::Reject { id, private_data } => of(0x47, id).private_data(private_data),
            CmRequest::Ready { id, private_data } => of(0x48, id).private_data(private_data),
            CmRequest::Disconnect { id, private_data } => of(0x49, id).private_data(private_data),
            CmRequest::Establish { id } => of(0x4a, id),
            CmRequest::Destroy { id } => of(0x4b, id),
            CmRequest::Migrate { id, channel } => of(0x4c, id).u32(*channel),
            CmRequest::QpAttributes { id } => of(0x4d, id),
            CmRequest::AcceptDatagrams { id, qpn, qkey, private_data } => {
                of(0x4e, id).u32(qpn.get()).u32(*qkey).private_data(private_data)
            }
            CmRequest::Post { id, posted } => of(0x4f, id).posted(posted),
            CmRequest::Taken { id } => of(0x50, id),
        }
    }

    pub(super) fn parse(kind: u8, fields: &mut In<'_>) -> Option<CmRequest> {
        match kind {
            0x41 => return Some(CmRequest::CreateChannel),
            0x42 => return Some(CmRequest::CreateId { channel: fields.u32()?, space: fields.space()? }),
            _ => {}
        }
        let id = fields.u64()?;
        Some(match kind {
            0x43 => CmRequest::Bind { id, address: fields.ip_port()?, reuses: fields.flag()? },
            0x44 => CmRequest::Listen { id, backlog: fields.u32()? },
            0x45 => {
                let connect = Connect {
                    destination: fields.ip_port()?,
                    service: fields.service()?,
                    path_mtu: fields.u8()?,
                    traffic_class: fields.u8()?,
                    param: fields.param()?,
                    private_data: fields.private_data()?,
                };
                CmRequest::Connect { id, connect: Box::new(connect) }
            }
            0x46 => CmRequest::Accept { id, param: fields.param()?, private_data: fields.private_data()? },
            0x47 => CmRequest::Reject { id, private_data: fields.private_data()? },
            0x48 => CmRequest::Ready { id, private_data: fields.private_data()? },
            0x49 => CmRequest::Disconnect { id, private_data: fields.private_data()? },
            0x4a => CmRequest::Establish { id },
            0x4b => CmRequest::Destroy { id },
            0x4c => CmRequest::Migrate { id, channel: fields.u32()? },
            0x4d => CmRequest::QpAttributes { id },
            0x4e => {
                let (qpn, qkey) = (Qpn::new(fields.number()?), fields.u32()?);
                CmRequest::AcceptDatagrams { id, qpn, qkey, private_data: fields.private_data()? }
            }
            0x4f => CmRequest::Post { id, posted: fields.posted()? },
            0x50 => CmRequest::Taken { id },
            _ => return None,
        })
    }
}

impl CmReply {
    pub(super) fn emit(&self) -> Out {
        match self {
            CmReply::Opened => Out::kind(0x40),
            CmReply::Channel(number) => Out::kind(0x41).u32(*number),
            CmReply::Id(id) => Out::kind(0x42).u64(*id),
            CmReply::Bound(address) => Out::kind(0x43).ip_port(*address),
            CmReply::Done => Out::kind(0x44),
            CmReply::Failed(errno) => Out::kind(0x45).u16(*errno),
            CmReply::QpAttributes(of) => attributes(Out::kind(0x46), of),
        }
    }

    pub(super) fn parse(kind: u8, fields: &mut In<'_>) -> Option<CmReply> {
        Some(match kind {
            0x40 => CmReply::Opened,
            0x41 => CmReply::Channel(fields.u32()?),
            0x42 => CmReply::Id(fields.u64()?),
            0x43 => CmReply::Bound(fields.ip_port()?),
            0x44 => CmReply::Done,
            0x45 => CmReply::Failed(fields.u16()?),
            0x46 => CmReply::QpAttributes(fields.attributes()?),
            _ => return None,
        })
    }
}
