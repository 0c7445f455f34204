//! The communication manager of the broker's addresses: its machines, and whose each id is.

mod early_requests;
mod event_channel;

use remora_cm::{Cm, CmConfig, CmError, CmEvent, EventKind, GidPair, Instant, MadPath};
use remora_wire::mad::{LEN, PortSpace, ServiceId, ip_cm};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;

use super::gsi::Gsi;
use super::port_table::PortTable;
use super::zoned_address::{ZonedAddress, is_link_local};
use crate::message::{IdEvent, IdEventKind};
use early_requests::EarlyRequests;
pub(super) use event_channel::{EventChannel, Full};

/// Ids at most, all programs' together.
pub(super) const IDS: usize = 16_384;
/// Event channels at most, all programs' together: each takes a descriptor.
pub(super) const CHANNELS: usize = 256;

/// Where an id is bound.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    /// `None`: at every address.
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
    /// That is not the broker's user.
    pub guest: bool,
    /// Where its events go.
    pub channel: u32,
    /// Of connections (`Tcp`, `Ib`) or of datagrams (`Udp`).
    pub space: PortSpace,
    pub bound: Option<Bound>,
}

/// What a peer asks for.
struct Asked {
    listener: u64,
    gids: GidPair,
    service_id: ServiceId,
    ip: Option<ip_cm::Repr>,
}

/// All of the communication manager.
#[derive(Debug)]
pub(super) struct CmAgent {
    pub cm: Cm,
    pub gsi: Gsi,
    /// Of connections, of datagrams, and of `RDMA_PS_IB`.
    ports: [PortTable; 3],
    started: std::time::Instant,
    ids: BTreeMap<u64, Id>,
    /// Ids by user.
    users: BTreeMap<u32, usize>,
    channels: BTreeMap<u32, EventChannel>,
    next_id: u64,
    next_channel: u32,
    pub early: EarlyRequests,
}

impl CmAgent {
    pub fn new() -> CmAgent {
        // Peers tell managers apart by their GUID, and messages of an earlier one by the first id.
        let random = || RandomState::new().hash_one(std::process::id());
        let config = CmConfig { max_ids: IDS as u32, ..CmConfig::new(random(), random()) };
        CmAgent {
            cm: Cm::new(config),
            gsi: Gsi::new(),
            ports: std::array::from_fn(|_| PortTable::new(random())),
            started: std::time::Instant::now(),
            ids: BTreeMap::new(),
            users: BTreeMap::new(),
            channels: BTreeMap::new(),
            next_id: 1,
            next_channel: 0,
            early: EarlyRequests::default(),
        }
    }

    /// The time, as the machines have it.
    pub fn now(&self) -> Instant {
        Instant(self.started.elapsed().as_nanos() as u64)
    }

    /// The ports of a port space.
    pub fn ports(&mut self, space: PortSpace) -> &mut PortTable {
        &mut self.ports[match space {
            PortSpace::Udp => 1,
            PortSpace::Ib => 2,
            _ => 0,
        }]
    }

    /// How long nothing is due; `None`: no timer runs.
    pub fn rest(&self) -> Option<std::time::Duration> {
        let deadline = self.cm.next_deadline().min(self.early.next_deadline());
        let left = || deadline.0.saturating_sub(self.now().0);
        (deadline < Instant::NEVER).then(|| std::time::Duration::from_nanos(left()))
    }

    /// A new id of a program, unless there are as many as there may be.
    pub fn create_id(&mut self, id: Id) -> Option<u64> {
        (self.ids.len() < IDS).then(|| {
            let number = self.next_id;
            self.next_id += 1;
            self.add_id(number, id);
            number
        })
    }

    fn add_id(&mut self, number: u64, id: Id) {
        *self.users.entry(id.user).or_default() += 1;
        self.ids.insert(number, id);
    }

    /// All ids.
    pub fn ids(&self) -> usize {
        self.ids.len()
    }

    /// Ids of a user.
    pub fn ids_of_user(&self, uid: u32) -> usize {
        self.users.get(&uid).copied().unwrap_or(0)
    }

    /// All event channels.
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    /// Event channels of a program.
    pub fn channels_of(&self, client: u32) -> usize {
        self.channels.values().filter(|channel| channel.client == client).count()
    }

    /// A program's id; `None`: it has none of this number.
    pub fn id(&self, client: u32, id: u64) -> Option<Id> {
        self.ids.get(&id).copied().filter(|id| id.client == client)
    }

    /// Is it an id of datagrams?
    pub fn is_datagrams(&self, id: u64) -> bool {
        self.ids.get(&id).is_some_and(|id| id.space == PortSpace::Udp)
    }

    /// Has the id's port a listener, which is this id?
    pub fn is_listening(&mut self, id: u64, of: Id) -> bool {
        of.bound.is_some_and(|bound| self.ports(of.space).is_listening(id, bound.port))
    }

    pub fn id_mut(&mut self, client: u32, id: u64) -> Option<&mut Id> {
        self.ids.get_mut(&id).filter(|id| id.client == client)
    }

    /// All ids of a program.
    pub fn ids_of(&self, client: u32) -> Vec<u64> {
        self.ids.iter().filter(|(_, id)| id.client == client).map(|(number, _)| *number).collect()
    }

    /// Moves an id to another channel. Its events that wait for space go there, too.
    pub fn migrate(&mut self, client: u32, id: u64, channel: u32) {
        let Some(moves) = self.id_mut(client, id) else { return };
        let from = std::mem::replace(&mut moves.channel, channel);
        let waiting = self.channels.get_mut(&from).map(|from| from.take_waiting(id)).unwrap_or_default();
        let Some(channel) = self.channels.get_mut(&channel) else { return };
        for event in waiting {
            // As many wait as waited before.
            let _ = channel.put(event);
        }
    }

    /// Ends an id in any state: its peer gets to know, its port is free, and it has no more events.
    ///
    /// # Errors
    /// `Busy`: MADs have to be taken first, and nothing has changed.
    pub fn destroy(&mut self, id: u64) -> Result<(), CmError> {
        match self.cm.destroy(self.now(), id) {
            Ok(()) | Err(CmError::NoSuchHandle) => {}
            Err(error) => return Err(error),
        }
        let Some(removed) = self.ids.remove(&id) else { return Ok(()) };
        if let Some(count) = self.users.get_mut(&removed.user) {
            *count -= 1;
            if *count == 0 {
                self.users.remove(&removed.user);
            }
        }
        if let Some(bound) = removed.bound {
            self.ports(removed.space).release(id, bound.port);
        }
        if let Some(channel) = self.channels.get_mut(&removed.channel) {
            channel.take_waiting(id);
        }
        Ok(())
    }

    /// Takes a channel in; its number. `None`: there are as many as there may be.
    pub fn add_channel(&mut self, channel: EventChannel) -> Option<u32> {
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

    pub fn channel(&mut self, number: u32) -> Option<&mut EventChannel> {
        self.channels.get_mut(&number)
    }

    /// Closes a channel: the events of its ids are lost from now on.
    pub fn remove_channel(&mut self, number: u32) {
        self.channels.remove(&number);
    }

    /// Closes all channels of a program.
    pub fn remove_channels_of(&mut self, client: u32) {
        self.channels.retain(|_, channel| channel.client != client);
    }

    /// Keeps a request for which nobody listens yet. False: it is none, or there are too many.
    pub fn hold(&mut self, now: Instant, gids: GidPair, mad: &[u8]) -> bool {
        self.early.hold(now, gids, mad, &self.cm)
    }

    /// Takes the next request that was kept and waits no more. False: there is none.
    pub fn receive_early(&mut self, now: Instant) -> bool {
        let is_offered = |service, gids| self.cm.is_offered(service, gids);
        let Some((gids, mad)) = self.early.next_ready(now, is_offered) else { return false };
        self.receive(now, gids, &mad[..]);
        true
    }

    /// Takes a MAD that came for one of our addresses.
    pub fn receive(&mut self, now: Instant, gids: GidPair, mad: &[u8]) {
        let fresh = self.next_id;
        if self.cm.receive(now, gids, mad, fresh) {
            self.next_id += 1;
        }
    }

    /// Puts an event into its id's channel. `Err`: the program of this number reads none.
    pub fn tell(&mut self, event: &CmEvent) -> Result<(), u32> {
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

    /// Puts an event into its id's channel. `None`: there is no such id, or its channel is closed.
    /// `Some(Err)`: the program of this number reads none.
    pub fn put(&mut self, event: &IdEvent) -> Option<Result<(), u32>> {
        let Id { client, channel, .. } = *self.ids.get(&event.id)?;
        let put = self.channels.get_mut(&channel)?.put(event.emit());
        Some(put.map_err(|Full| client))
    }

    /// A request becomes a new id of the program that listens. `None`: nobody can be told, and the peer is
    /// refused.
    fn request(
        &mut self,
        event: &CmEvent,
        asked: &Asked,
        kind: impl FnOnce([SocketAddr; 2]) -> IdEventKind,
    ) -> Option<IdEvent> {
        let listener = self.ids.get(&asked.listener).copied();
        let reachable = listener.filter(|id| self.channels.contains_key(&id.channel));
        let reachable = reachable.filter(|listener| {
            let free = IDS.saturating_sub(self.ids.len());
            free > 0 && (!listener.guest || self.ids_of_user(listener.user) < free)
        });
        let (Some(listener), Some(ip)) = (reachable, asked.ip) else {
            // There is space for the refusal: nothing else was sent since the request came.
            let refused = self.cm.destroy(self.now(), event.handle);
            debug_assert_eq!(refused, Ok(()), "a request that nobody has seen");
            return None;
        };
        self.add_id(event.handle, Id { bound: None, ..listener });
        let GidPair { local, remote, zone } = asked.gids;
        let at = |address, port| {
            let zone = if is_link_local(address) { zone } else { 0 };
            ZonedAddress { address, zone }.at(port)
        };
        let ends = [at(local, asked.service_id.port()), at(remote, ip.port)];
        Some(IdEvent { id: event.handle, kind: kind(ends), private_data: event.private_data.to_vec() })
    }

    /// The next MAD that leaves, and between which addresses.
    pub fn transmit(&mut self, mad: &mut [u8; LEN]) -> Option<MadPath> {
        self.cm.transmit(mad)
    }
}
