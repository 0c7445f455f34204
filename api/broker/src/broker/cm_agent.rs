//! The communication manager of the broker's addresses: its state machines, and the owner of each id.

mod early_requests;
mod event_channel;

use remora_cm::{Cm, CmConfig, CmError, CmEvent, EventKind, GidPair, Instant, MadPath};
use remora_host::users::{Amounts, Claim, Resource, Users};
use remora_wire::mad::{LEN, PortSpace, ServiceId, ip_cm};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;

use super::gsi::Gsi;
use super::port_table::PortTable;
use super::zoned_address::{ZonedAddress, is_link_local};
use crate::message::{IdEvent, IdEventKind};
use early_requests::EarlyRequests;
pub(super) use event_channel::{EventChannel, Full};

/// Maximum number of ids of all programs together.
pub(super) const IDS: usize = 16_384;
/// Maximum number of event channels of all programs together. Each takes a descriptor.
pub(super) const CHANNELS: usize = 256;

/// The address and port that an id is bound to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    /// `None` stands for every address.
    pub address: Option<ZonedAddress>,
    pub port: u16,
}

/// An id of a program.
#[derive(Copy, Clone, Debug)]
pub(super) struct Id {
    /// The number of the program's connection to the broker.
    pub client: u32,
    /// The program's user.
    pub user: u32,
    /// The number of the event channel for the id's events.
    pub channel: u32,
    /// The id's port space: of connections (`Tcp`, `Ib`) or of datagrams (`Udp`).
    pub space: PortSpace,
    pub bound: Option<Bound>,
}

/// A peer's request for a connection or for a datagram service.
struct Asked {
    listener: u64,
    gids: GidPair,
    service_id: ServiceId,
    ip: Option<ip_cm::Repr>,
}

/// The communication manager, with the ids and event channels of all programs.
#[derive(Debug)]
pub(super) struct CmAgent {
    pub cm: Cm,
    pub gsi: Gsi,
    /// The ports in use for connections, for datagrams, and in `RDMA_PS_IB`.
    ports: [PortTable; 3],
    started: std::time::Instant,
    ids: BTreeMap<u64, Id>,
    /// The claim of each id.
    claims: BTreeMap<u64, Claim>,
    users: Arc<Users>,
    channels: BTreeMap<u32, EventChannel>,
    next_id: u64,
    next_channel: u32,
    pub early: EarlyRequests,
}

impl CmAgent {
    pub(crate) fn new(users: Arc<Users>) -> CmAgent {
        // Peers distinguish managers by their GUID, and messages of an earlier manager by its first id, so
        // both are random.
        let random = || RandomState::new().hash_one(std::process::id());
        let config = CmConfig { max_ids: IDS as u32, ..CmConfig::new(random(), random()) };
        CmAgent {
            cm: Cm::new(config),
            gsi: Gsi::new(),
            ports: std::array::from_fn(|_| PortTable::new(random())),
            started: std::time::Instant::now(),
            ids: BTreeMap::new(),
            claims: BTreeMap::new(),
            users,
            channels: BTreeMap::new(),
            next_id: 1,
            next_channel: 0,
            early: EarlyRequests::default(),
        }
    }

    /// The present time on the clock of the state machines.
    pub(crate) fn now(&self) -> Instant {
        Instant(self.started.elapsed().as_nanos() as u64)
    }

    /// The ports of a port space.
    pub(crate) fn ports(&mut self, space: PortSpace) -> &mut PortTable {
        &mut self.ports[match space {
            PortSpace::Udp => 1,
            PortSpace::Ib => 2,
            _ => 0,
        }]
    }

    /// The time until the next deadline. `None` if no timer runs.
    pub(crate) fn rest(&self) -> Option<std::time::Duration> {
        let deadline = self.cm.next_deadline().min(self.early.next_deadline());
        let left = || deadline.0.saturating_sub(self.now().0);
        (deadline < Instant::NEVER).then(|| std::time::Duration::from_nanos(left()))
    }

    /// Creates an id of a program and returns its number. `None` if there are as many ids as the user may
    /// have.
    pub(crate) fn create_id(&mut self, id: Id) -> Option<u64> {
        let number = self.next_id;
        self.add_id(number, id)?;
        self.next_id += 1;
        Some(number)
    }

    fn add_id(&mut self, number: u64, id: Id) -> Option<()> {
        if self.ids.len() >= IDS {
            return None;
        }
        let claim = self.users.user(id.user).claim(Amounts::of(Resource::CmId, 1)).ok()?;
        self.claims.insert(number, claim);
        self.ids.insert(number, id);
        Some(())
    }

    /// Returns an id of a program. `None` if the program has no id with this number.
    pub(crate) fn id(&self, client: u32, id: u64) -> Option<Id> {
        self.ids.get(&id).copied().filter(|id| id.client == client)
    }

    /// Returns whether the id belongs to the port space of datagrams.
    pub(crate) fn is_datagrams(&self, id: u64) -> bool {
        self.ids.get(&id).is_some_and(|id| id.space == PortSpace::Udp)
    }

    /// Returns whether the id listens at the port that it is bound to.
    pub(crate) fn is_listening(&mut self, id: u64, entry: Id) -> bool {
        entry.bound.is_some_and(|bound| self.ports(entry.space).is_listening(id, bound.port))
    }

    pub(crate) fn id_mut(&mut self, client: u32, id: u64) -> Option<&mut Id> {
        self.ids.get_mut(&id).filter(|id| id.client == client)
    }

    /// The numbers of all ids of a program.
    pub(crate) fn ids_of(&self, client: u32) -> Vec<u64> {
        self.ids.iter().filter(|(_, id)| id.client == client).map(|(number, _)| *number).collect()
    }

    /// Moves an id to another channel, including its events that wait for space.
    pub(crate) fn migrate(&mut self, client: u32, id: u64, channel: u32) {
        let Some(moves) = self.id_mut(client, id) else { return };
        let source = std::mem::replace(&mut moves.channel, channel);
        let waiting =
            self.channels.get_mut(&source).map(|source| source.take_waiting(id)).unwrap_or_default();
        let Some(channel) = self.channels.get_mut(&channel) else { return };
        for event in waiting {
            // The new channel has space: as many events wait in all as before.
            let _ = channel.put(event);
        }
    }

    /// Destroys an id in any state. Its peer is notified, its port becomes free, and it gets no more events.
    ///
    /// # Errors
    /// `Busy` if MADs must be transmitted first. Nothing has changed then.
    pub(crate) fn destroy(&mut self, id: u64) -> Result<(), CmError> {
        match self.cm.destroy(self.now(), id) {
            Ok(()) | Err(CmError::NoSuchHandle) => {}
            Err(error) => return Err(error),
        }
        let Some(removed) = self.ids.remove(&id) else { return Ok(()) };
        self.claims.remove(&id);
        if let Some(bound) = removed.bound {
            self.ports(removed.space).release(id, bound.port);
        }
        if let Some(channel) = self.channels.get_mut(&removed.channel) {
            channel.take_waiting(id);
        }
        Ok(())
    }

    /// Registers a channel and returns its number. `None` if there are as many channels as are allowed.
    pub(crate) fn add_channel(&mut self, channel: EventChannel) -> Option<u32> {
        if self.channels.len() >= CHANNELS {
            return None;
        }
        while self.channels.contains_key(&self.next_channel) {
            self.next_channel = self.next_channel.wrapping_add(1);
        }
        let number = self.next_channel;
        self.next_channel = self.next_channel.wrapping_add(1);
        self.channels.insert(number, channel);
        Some(number)
    }

    pub(crate) fn channel(&mut self, number: u32) -> Option<&mut EventChannel> {
        self.channels.get_mut(&number)
    }

    /// Closes a channel. Further events of its ids are lost.
    pub(crate) fn remove_channel(&mut self, number: u32) {
        self.channels.remove(&number);
    }

    /// Closes all channels of a program.
    pub(crate) fn remove_channels_of(&mut self, client: u32) {
        self.channels.retain(|_, channel| channel.client != client);
    }

    /// Keeps a request for a service that no id offers yet. Returns false if the MAD is no such request, or
    /// if too many are kept.
    pub(crate) fn hold(&mut self, now: Instant, path: MadPath, mad: &[u8]) -> bool {
        self.early.hold(now, path, mad, &self.cm)
    }

    /// Processes the next kept request that is offered now or has waited long enough. Returns false if there
    /// is none.
    pub(crate) fn receive_early(&mut self, now: Instant) -> bool {
        let is_offered = |service, gids| self.cm.is_offered(service, gids);
        let Some((path, mad)) = self.early.next_ready(now, is_offered) else { return false };
        self.receive(now, path, &mad[..]);
        true
    }

    /// Processes a MAD that arrived at one of the broker's addresses.
    pub(crate) fn receive(&mut self, now: Instant, path: MadPath, mad: &[u8]) {
        let fresh = self.next_id;
        if self.cm.receive(now, path, mad, fresh) {
            self.next_id += 1;
        }
    }

    /// Puts an event of the state machines into the channel of its id. On an error, the program with this
    /// connection number does not read its events.
    pub(crate) fn tell(&mut self, event: &CmEvent) -> Result<(), u32> {
        let message = match &event.kind {
            EventKind::ConnectRequest(request) => {
                let remora_cm::ConnectRequest { listener, gids, service_id, ip, service, param } = *request;
                let kind = |[local, remote]: [SocketAddr; 2]| IdEventKind::ConnectRequest {
                    listener,
                    local,
                    remote,
                    service,
                    param,
                };
                self.request(event, &Asked { listener, gids, service_id, ip }, kind)
            }
            EventKind::SidrRequest { listener, gids, service_id, ip, .. } => {
                let asked = Asked { listener: *listener, gids: *gids, service_id: *service_id, ip: *ip };
                let kind = |[local, remote]: [SocketAddr; 2]| IdEventKind::DatagramRequest {
                    listener: asked.listener,
                    local,
                    remote,
                };
                self.request(event, &asked, kind)
            }
            kind => IdEvent::of(event.handle, kind, &event.private_data),
        };
        message.and_then(|message| self.put(&message)).unwrap_or(Ok(()))
    }

    /// Puts an event into the channel of its id. `None` if there is no such id, or its channel is closed.
    /// `Some(Err)` if the program with this connection number does not read its events.
    pub(crate) fn put(&mut self, event: &IdEvent) -> Option<Result<(), u32>> {
        let Id { client, channel, .. } = *self.ids.get(&event.id)?;
        let put = self.channels.get_mut(&channel)?.put(event.emit());
        Some(put.map_err(|Full| client))
    }

    /// Creates an id of the listening program for a peer's request. `None` if the program cannot be notified;
    /// the request is refused then.
    fn request(
        &mut self,
        event: &CmEvent,
        asked: &Asked,
        kind: impl FnOnce([SocketAddr; 2]) -> IdEventKind,
    ) -> Option<IdEvent> {
        let listener = self.ids.get(&asked.listener).copied();
        let reachable = listener.filter(|id| self.channels.contains_key(&id.channel));
        let ip = asked.ip.zip(reachable).and_then(|(ip, listener)| {
            self.add_id(event.handle, Id { bound: None, ..listener })?;
            Some(ip)
        });
        let Some(ip) = ip else {
            // The refusal can be sent: the machines have sent nothing since the request arrived.
            let refused = self.cm.destroy(self.now(), event.handle);
            debug_assert_eq!(refused, Ok(()), "a request that no program has seen can be destroyed");
            return None;
        };
        let GidPair { local, remote, zone } = asked.gids;
        let socket_address = |address, port| {
            let zone = if is_link_local(address) { zone } else { 0 };
            ZonedAddress { address, zone }.at(port)
        };
        let ends = [socket_address(local, asked.service_id.port()), socket_address(remote, ip.port)];
        Some(IdEvent { id: event.handle, kind: kind(ends), private_data: event.private_data.to_vec() })
    }

    /// Writes the next MAD to be sent to `mad`, and returns its addresses. `None` if there is none.
    pub(crate) fn transmit(&mut self, mad: &mut [u8; LEN]) -> Option<MadPath> {
        self.cm.transmit(mad)
    }
}
