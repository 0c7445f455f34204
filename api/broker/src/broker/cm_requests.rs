//! Requests of programs to the communication manager, and the transport of MADs and events.

use remora_cm::{
    AcceptParam, CmError, ConnParam, ConnectParam, GidPair, Listen, MadPath, RejectParam, SidrReplyParam,
    SidrRequestParam,
};
use remora_host::packet::PacketSocket;
use remora_host::users::Resource;
use remora_port::udp::{self, Arrival};
use remora_port::user;
use remora_wire::mad::{LEN, PortSpace, RejectReason, ServiceId, SidrStatus, ip_cm};
use remora_wire::{Address, Endpoint, Qpn, ROCE_PORT};
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use super::cm_agent::{Bound, EventChannel, Id};
use super::state::{Source, State};
use super::zoned_address::{ZonedAddress, is_link_local};
use crate::message::{CmReply, CmRequest, Connect, IdEvent, IdEventKind, Posted, Reply};

/// Maximum number of requests that may wait for a listener's answer. It is also used for a backlog of 0, as
/// by Linux' `rdma_ucm` (`max_backlog`).
const BACKLOG: u32 = 1024;

/// The errno for an error of the state machines.
fn errno(error: CmError) -> Errno {
    match error {
        CmError::NoSuchHandle | CmError::HandleInUse | CmError::WrongState | CmError::OutOfRange => {
            Errno::INVAL
        }
        CmError::AddressInUse => Errno::ADDRINUSE,
        CmError::NoResources => Errno::NOMEM,
        CmError::Busy => Errno::AGAIN,
    }
}

fn socket_address(bound: Bound) -> SocketAddr {
    let every = SocketAddr::new(std::net::Ipv6Addr::UNSPECIFIED.into(), bound.port);
    bound.address.map_or(every, |local| local.at(bound.port))
}

fn accept_param<'a>(param: &ConnParam, private_data: &'a [u8]) -> AcceptParam<'a> {
    AcceptParam {
        qpn: param.qpn,
        starting_psn: param.starting_psn,
        responder_resources: param.responder_resources,
        initiator_depth: param.initiator_depth,
        flow_control: param.flow_control,
        rnr_retry_count: param.rnr_retry_count,
        srq: param.srq,
        private_data,
    }
}

impl State {
    /// Answers a request. MADs and events that it causes are sent before the reply.
    pub(super) fn answer_cm(&mut self, number: u32, request: CmRequest) {
        if matches!(request, CmRequest::CreateChannel) {
            return self.create_channel(number);
        }
        let reply = match self.cm_request(number, request) {
            Ok(reply) => reply,
            Err(errno) => CmReply::Failed(errno.raw_os_error() as u16),
        };
        self.pump_cm();
        self.send(number, &Reply::Cm(reply), &[]);
    }

    fn cm_request(&mut self, client: u32, request: CmRequest) -> Result<CmReply, Errno> {
        let now = self.agent.now();
        if let Some(id) = request.id() {
            self.agent.id(client, id).ok_or(Errno::INVAL)?;
        }
        let done = match request {
            CmRequest::CreateChannel => return Err(Errno::INVAL),
            CmRequest::CreateId { channel, space } => {
                self.own_channel(client, channel)?;
                let user = self.clients.get(client).ok_or(Errno::INVAL)?.user.uid();
                let id = self.agent.create_id(Id { client, user, channel, space, bound: None });
                return id.map(CmReply::Id).ok_or(Errno::NOMEM);
            }
            CmRequest::Bind { id, address, reuses } => {
                let bound = self.bind_id(client, id, address, reuses)?;
                return Ok(CmReply::Bound(socket_address(bound)));
            }
            CmRequest::Listen { id, backlog } => {
                let bound = self.listen(client, id, backlog)?;
                return Ok(CmReply::Bound(socket_address(bound)));
            }
            CmRequest::Migrate { id, channel } => {
                self.own_channel(client, channel)?;
                self.agent.migrate(client, id, channel);
                return Ok(CmReply::Done);
            }
            CmRequest::QpAttributes { id } => {
                let attributes = self.agent.cm.qp_attributes(id).map_err(errno)?;
                return Ok(CmReply::QpAttributes(attributes));
            }
            CmRequest::Post { id, posted } => return self.post(id, posted),
            CmRequest::Connect { id, connect } => {
                self.own_qpn(client, connect.param.qpn)?;
                return self.connect(client, id, &connect).map(|()| CmReply::Done);
            }
            CmRequest::Accept { id, param, private_data } => {
                self.own_qpn(client, param.qpn)?;
                self.agent.cm.accept(now, id, &accept_param(&param, &private_data))
            }
            CmRequest::AcceptDatagrams { id, qpn, qkey, private_data } => {
                self.own_qpn(client, qpn)?;
                let status = SidrStatus::VALID;
                let private_data = &private_data[..];
                self.agent.cm.sidr_reply(now, id, &SidrReplyParam { status, qpn, qkey, private_data })
            }
            CmRequest::Reject { id, private_data } if self.agent.is_datagrams(id) => {
                let status = SidrStatus::REJECTED;
                let qpn = Qpn::new(0);
                let private_data = &private_data[..];
                self.agent.cm.sidr_reply(now, id, &SidrReplyParam { status, qpn, qkey: 0, private_data })
            }
            CmRequest::Reject { id, private_data } => {
                let reject = RejectParam::new(RejectReason::CONSUMER);
                self.agent.cm.reject(now, id, &RejectParam { private_data: &private_data, ..reject })
            }
            CmRequest::Ready { id, private_data } => self.agent.cm.ready_to_use(id, &private_data),
            CmRequest::Disconnect { id, private_data } => self.agent.cm.disconnect(now, id, &private_data),
            CmRequest::Establish { id } => self.agent.cm.establish(id),
            CmRequest::Destroy { id } => self.agent.destroy(id),
            CmRequest::Taken { id } => {
                self.agent.cm.taken(id);
                return Ok(CmReply::Done);
            }
        };
        done.map(|()| CmReply::Done).map_err(errno)
    }

    /// Checks that a guest uses only queue pairs of its own user: a peer would send to the QP number that the
    /// guest names.
    fn own_qpn(&self, client: u32, qpn: Qpn) -> Result<(), Errno> {
        let asking = self.clients.get(client).ok_or(Errno::INVAL)?;
        let holder = self.clients.of_range(qpn.range());
        let uid = asking.user.uid();
        let is_own = !asking.user.is_guest()
            || qpn == Qpn::new(0)
            || holder.is_some_and(|(_, holder)| user::is_same(holder.user.uid(), uid));
        is_own.then_some(()).ok_or(Errno::INVAL)
    }

    /// Checks that an event channel belongs to this program.
    fn own_channel(&mut self, client: u32, channel: u32) -> Result<(), Errno> {
        let own = self.agent.channel(channel).is_some_and(|channel| channel.client == client);
        own.then_some(()).ok_or(Errno::BADF)
    }

    /// Creates an event channel and sends one end of it to the program.
    fn create_channel(&mut self, client: u32) {
        let claims = [Resource::EventChannel, Resource::Descriptor].map(|kind| self.claim(client, kind, 1));
        let claimed = match claims {
            [Ok(channel), Ok(descriptor)] => Ok(vec![channel, descriptor]),
            _ => Err(std::io::Error::from(Errno::MFILE)),
        };
        let made = claimed.and_then(|claims| {
            let (ours, theirs) = PacketSocket::pair()?;
            ours.wait_for_nothing()?;
            let channel = EventChannel::new(client, ours, claims);
            let number = self.agent.add_channel(channel).ok_or(Errno::MFILE)?;
            if let Some(channel) = self.agent.channel(number) {
                // Edge-triggered: reported when the program reads after the socket was full, or closes it.
                let flags = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
                let watched = epoll::add(&self.poll, &*channel, Source::Events(number).data(), flags);
                if let Err(errno) = watched {
                    self.agent.remove_channel(number);
                    return Err(errno.into());
                }
            }
            Ok((number, theirs))
        });
        match made {
            Ok((number, theirs)) => {
                self.send(client, &Reply::Cm(CmReply::Channel(number)), &[theirs.as_fd()]);
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(Errno::NOMEM.raw_os_error());
                self.send(client, &Reply::Cm(CmReply::Failed(errno as u16)), &[]);
            }
        }
    }

    /// Returns the place of an address, and binds its first socket.
    fn place_of(&mut self, wanted: ZonedAddress) -> Result<usize, Errno> {
        let is = |local: SocketAddr| ZonedAddress::of(local) == wanted;
        let find = |lives: bool| {
            let mut addresses = self.addresses.iter();
            addresses.position(|address| is(address.local) && (address.gid().is_some() || !lives))
        };
        let place = find(true).or_else(|| find(false)).ok_or(Errno::ADDRNOTAVAIL)?;
        self.begin(place).map_err(|_| Errno::NODEV)?;
        Ok(place)
    }

    fn bind_id(&mut self, client: u32, id: u64, local: SocketAddr, reuses: bool) -> Result<Bound, Errno> {
        let there = self.agent.id(client, id).ok_or(Errno::INVAL)?;
        let address = (!local.ip().is_unspecified()).then(|| ZonedAddress::of(local));
        if address.is_some_and(ZonedAddress::is_ambiguous) {
            return Err(Errno::INVAL);
        }
        if self.agent.cm.state(id).is_some() || self.agent.is_listening(id, there) {
            return Err(Errno::INVAL);
        }
        if let Some(address) = address {
            self.place_of(address)?;
        }
        let mut local = local;
        match there.bound {
            // An id bound to a port of all addresses may be narrowed to one address and keeps its port, which
            // no other id can have.
            Some(Bound { address: None, port }) if address.is_some() && [0, port].contains(&local.port()) => {
                self.agent.ports(there.space).release(id, port);
                local.set_port(port);
            }
            Some(_) => return Err(Errno::INVAL),
            None => {}
        }
        let port = self
            .agent
            .ports(there.space)
            .bind(id, address, local.port(), reuses)
            .map_err(|_| Errno::ADDRINUSE)?;
        let bound = Bound { address, port };
        if let Some(id) = self.agent.id_mut(client, id) {
            id.bound = Some(bound);
        }
        Ok(bound)
    }

    /// Puts an event that the program itself supplies into the id's channel.
    fn post(&mut self, id: u64, posted: Posted) -> Result<CmReply, Errno> {
        let event = IdEvent { id, kind: IdEventKind::Posted(posted), private_data: Vec::new() };
        match self.agent.put(&event) {
            Some(Err(deaf)) => {
                self.deaf.insert(deaf);
                Err(Errno::NOBUFS)
            }
            Some(Ok(())) => Ok(CmReply::Done),
            None => Err(Errno::BADF),
        }
    }

    /// Makes an id listen. As with listen(2), an id that is not bound gets a port of every address.
    fn listen(&mut self, client: u32, id: u64, backlog: u32) -> Result<Bound, Errno> {
        let Id { space, bound, .. } = self.agent.id(client, id).ok_or(Errno::INVAL)?;
        let bound = match bound {
            Some(bound) => bound,
            None => self.bind_id(client, id, (IpAddr::from([0; 4]), 0).into(), false)?,
        };
        // Only the broker's first address may have no socket yet.
        self.begin(0).map_err(|_| Errno::NODEV)?;
        let service_id = ServiceId::rdma_ip(space, bound.port);
        let backlog = if backlog == 0 { BACKLOG } else { backlog.min(BACKLOG) };
        let (address, zone) =
            (bound.address.map(|zoned| zoned.address), bound.address.map_or(0, |zoned| zoned.zone));
        let listen = Listen { service_id, address, zone, backlog };
        self.agent.cm.listen(id, &listen).map_err(errno)?;
        if self.agent.ports(space).listen(id, bound.port).is_err() {
            let now = self.agent.now();
            let _ = self.agent.cm.destroy(now, id);
            return Err(Errno::ADDRINUSE);
        }
        self.receive_early();
        Ok(bound)
    }

    fn connect(&mut self, client: u32, id: u64, connect: &Connect) -> Result<(), Errno> {
        let Id { space, bound, .. } = self.agent.id(client, id).ok_or(Errno::INVAL)?;
        let bound = bound.ok_or(Errno::INVAL)?;
        let local = bound.address.ok_or(Errno::INVAL)?;
        let ZonedAddress { address: remote, zone } = ZonedAddress::of(connect.destination);
        let reaches_zone = !is_link_local(remote) || zone == local.zone;
        if local.address.is_ipv4() != remote.is_ipv4() || !reaches_zone {
            return Err(Errno::NETUNREACH);
        }
        self.place_of(local)?;
        let gids = GidPair { local: local.address, remote, zone: local.zone };
        let service_id = ServiceId::rdma_ip(space, connect.destination.port());
        let ip = ip_cm::Repr { port: bound.port, addresses: ip_cm::Addresses::of(gids.local, remote) };
        let now = self.agent.now();
        if space == PortSpace::Udp {
            let new = SidrRequestParam::new(gids, service_id);
            let param = SidrRequestParam {
                ip: Some(ip),
                traffic_class: connect.traffic_class,
                private_data: &connect.private_data,
                ..new
            };
            return self.agent.cm.sidr_request(now, id, &param).map_err(errno);
        }
        let ConnParam { qpn, starting_psn, .. } = connect.param;
        let param = ConnectParam {
            ip: Some(ip),
            starting_psn,
            service: connect.service,
            path_mtu: connect.path_mtu,
            traffic_class: connect.traffic_class,
            responder_resources: connect.param.responder_resources,
            initiator_depth: connect.param.initiator_depth,
            flow_control: connect.param.flow_control,
            retry_count: connect.param.retry_count,
            rnr_retry_count: connect.param.rnr_retry_count,
            srq: connect.param.srq,
            private_data: &connect.private_data,
            ..ConnectParam::new(gids, service_id, qpn)
        };
        self.agent.cm.connect(now, id, &param).map_err(errno)
    }

    /// Processes a frame for queue pair 1 of an address, which is in this range of the buffer.
    pub(super) fn receive_mad(&mut self, place: usize, arrival: &Arrival, frame: std::ops::Range<usize>) {
        let source = arrival.source;
        let socket_address = self.addresses[place].local;
        let local = udp::endpoint(socket_address);
        let Some(mad) = self.agent.gsi.open(source, local, &self.buffer[frame]) else {
            self.tally.management += 1;
            return;
        };
        self.tally.mads += 1;
        let gids = GidPair {
            local: local.address,
            remote: source.address,
            zone: ZonedAddress::of(socket_address).zone,
        };
        let traffic_class = arrival.fields.map_or(0, |fields| fields.traffic_class);
        let path = MadPath { gids, traffic_class };
        let now = self.agent.now();
        // A peer at one of these addresses is itself one of the programs that connect.
        let from_here = self.addresses.iter().any(|own| Address::from(own.local.ip()) == gids.remote);
        let may_listen = self.clients.connecting() > usize::from(from_here);
        if !may_listen || !self.agent.hold(now, path, mad) {
            self.agent.receive(now, path, mad);
            self.pump_cm();
        }
    }

    /// Processes the kept requests that are due.
    fn receive_early(&mut self) {
        let now = self.agent.now();
        while self.agent.receive_early(now) {
            self.pump_cm();
        }
    }

    /// Lets the state machines repeat and end what is due.
    pub(super) fn expire_cm(&mut self) {
        while self.agent.cm.next_deadline() <= self.agent.now() {
            let now = self.agent.now();
            self.agent.cm.expire(now);
            self.pump_cm();
        }
        self.receive_early();
    }

    /// Sends the MADs of the state machines, and passes their events to programs.
    pub(super) fn pump_cm(&mut self) {
        let mut mad = [0; LEN];
        loop {
            if let Some(path) = self.agent.transmit(&mut mad) {
                self.send_mad(path, &mad);
            } else if let Some(event) = self.agent.cm.next_event() {
                if let Err(deaf) = self.agent.tell(&event) {
                    self.deaf.insert(deaf);
                }
            } else {
                break;
            }
        }
    }

    /// Sends a MAD. If that fails, the MAD is lost, as in a network, and is repeated later.
    fn send_mad(&mut self, path: MadPath, mad: &[u8; LEN]) {
        let MadPath { gids, traffic_class } = path;
        let source = ZonedAddress { address: gids.local, zone: gids.zone };
        let own = self.addresses.iter().find(|address| ZonedAddress::of(address.local) == source);
        let Some((local, group)) = own.and_then(|own| Some((own.local, own.group.as_ref()?))) else {
            self.tally.unsent += 1;
            return;
        };
        let destination = Endpoint { address: gids.remote, udp_port: ROCE_PORT };
        let frame = self.agent.gsi.seal(udp::endpoint(local), destination, mad);
        let socket = &group.sockets()[0];
        let sent = socket.send_classed(
            &frame,
            traffic_class,
            &socket.destination(udp::socket_address(destination, gids.zone)),
        );
        self.tally.unsent += u64::from(sent.is_err());
    }

    /// Called when a program reads its events after the channel was full, or has closed the channel.
    pub(super) fn look_at_channel(&mut self, number: u32) {
        let Some(channel) = self.agent.channel(number) else { return };
        channel.flush();
        if channel.is_over() {
            self.agent.remove_channel(number);
        }
    }

    /// Destroys the ids and channels of a program that is gone. Its peers are notified.
    pub(super) fn end_cm_of(&mut self, client: u32) {
        self.agent.remove_channels_of(client);
        for id in self.agent.ids_of(client) {
            self.pump_cm();
            let ended = self.agent.destroy(id);
            debug_assert_eq!(ended, Ok(()), "all MADs were transmitted before");
        }
        self.pump_cm();
    }
}
