//! The services of an engine beside the NIC's commands: doorbells, reports of completions, peers of the port,
//! neighbours and multicast groups.

use remora_memory::{Access, AccessError, Bytes, Key, MemoryCommand, MemoryReply, Pd, Reentered};
use remora_nic::{
    AddressVector, AsyncEvent, BellOwner, Command, CommandError, Device, DeviceError, Doorbell, FromReply,
    HandedPart, Modify, PartNumber, Reply,
};
use remora_port::shm::{self, Admit, DEFAULT_GEOMETRY, Link};
use remora_port::udp::SharedEndpoint;
use remora_port::{Endpoint, Peer};
use remora_wire::Qpn;
use remora_wire::frame::Address;
use rustix::fd::OwnedFd;
use std::io;
use std::net::TcpStream;
use std::time::Duration;

use super::{Engine, PortFacts};
use crate::attach::AttachError;
use crate::connect::{ConnectError, LinkOfferer, LinkPeer, Uplink, give_link};
use crate::doorbells::Doorbells;
use crate::pass::{CqHook, EventHook};
use crate::peers::EngineId;

/// The reason why a queue pair was not modified.
#[derive(Debug)]
pub enum ModifyRefusal {
    /// The port takes no more peers.
    Peer(AttachError),
    /// The NIC refuses the change.
    Nic(CommandError),
}

/// The reason why a queue pair was not attached to a multicast group.
#[derive(Debug)]
pub enum AttachRefusal {
    /// The NIC refuses.
    Nic(CommandError),
    /// The port cannot join the group.
    Port(AttachError),
    /// The NIC cannot receive its own frames.
    Link(ConnectError),
}

impl Engine {
    /// Hands memory or code to the NIC and returns its number, which a later command names.
    pub fn hand(&self, part: impl Into<HandedPart>) -> PartNumber {
        self.with_core(|core| core.hand(part.into()))
    }

    /// Executes a command on the NIC and returns the value that its reply carries.
    ///
    /// # Errors
    /// The refusal of the NIC, which has changed nothing then.
    ///
    /// # Panics
    /// If the calling thread is inside the engine ([`has_caller`](Engine::has_caller)).
    pub fn ask<T: FromReply>(&self, command: Command) -> Result<T, CommandError> {
        self.with_core(|core| core.ask(command))
    }

    /// Executes a command on the NIC and returns its reply.
    ///
    /// # Errors
    /// The refusal of the NIC, which has changed nothing then.
    ///
    /// # Panics
    /// If the calling thread is inside the engine ([`has_caller`](Engine::has_caller)).
    pub fn execute(&self, command: Command) -> Result<Reply, CommandError> {
        self.with_core(|core| core.execute(command))
    }

    /// Applies several changes to a queue pair in order, up to the first one that is refused.
    ///
    /// # Errors
    /// The refusal of the NIC.
    pub fn modify(&self, qp: Qpn, changes: &[Modify]) -> Result<(), CommandError> {
        self.with_core(|core| {
            changes
                .iter()
                .try_for_each(|change| core.ask(Command::ModifyQp { qp, change: Box::new(*change) }))
        })
    }

    /// Applies a change to a queue pair. If the change has an address vector and `link` is `None`, the
    /// vector's destination becomes a peer of the port. Returns the peer that the queue pair uses from now
    /// on, which the caller releases. On an error, `link` is released.
    ///
    /// # Errors
    /// The port takes no more peers, or the NIC refuses the change.
    pub fn modify_with_peer(
        &self,
        qp: Qpn,
        mut change: Modify,
        link: Option<Peer>,
    ) -> Result<Option<Peer>, ModifyRefusal> {
        self.with_core(|core| {
            let peer = match (&mut change.address, link) {
                (Some(address), None) => Some(core.use_address(address).map_err(ModifyRefusal::Peer)?),
                (_, link) => link,
            };
            let modified = core.ask::<()>(Command::ModifyQp { qp, change: Box::new(change) });
            modified.map(|()| peer).map_err(|error| {
                peer.into_iter().for_each(|peer| core.release_peer(peer));
                ModifyRefusal::Nic(error)
            })
        })
    }

    /// Creates an address handle. The destination of `address` becomes a peer of the port. Returns the number
    /// of the handle, and the peer, which the caller releases.
    ///
    /// # Errors
    /// The port takes no more peers, or the NIC refuses the handle.
    pub fn create_address_handle(
        &self,
        pd: Pd,
        mut address: AddressVector,
    ) -> Result<(u32, Peer), ModifyRefusal> {
        self.with_core(|core| {
            let peer = core.use_address(&mut address).map_err(ModifyRefusal::Peer)?;
            let number = core.ask(Command::CreateAddressHandle { pd, address });
            number.map(|number| (number, peer)).map_err(|error| {
                core.release_peer(peer);
                ModifyRefusal::Nic(error)
            })
        })
    }

    /// Informs the NIC that a queue pair has work, also if another process rings its doorbell.
    pub fn doorbell(&self, qp: Qpn) {
        self.with_core(|core| core.doorbell(qp));
    }

    /// Ends the recording of the NIC, if there is one, for a program that ends without closing the NIC.
    pub fn close_recording(&self) {
        self.with_core(|core| core.close_recording());
    }

    /// Drives the engine one step: processes frames that have arrived, and sends.
    pub fn step(&self) {
        self.with_core(|_| ());
    }

    /// Sets the channel that is notified when a completion queue needs attention.
    pub fn hook(&self, cq: u32, hook: Option<CqHook>) {
        self.with_core(|core| core.hook(cq, hook));
    }

    /// Makes `hook` receive the asynchronous events of this engine, inside the engine's lock. The hook must
    /// not call the engine.
    pub fn hook_events(&self, hook: EventHook) {
        self.with_core(|core| core.hook_events(hook));
    }

    /// Frees the doorbell of a queue pair: one of the engine, or one of a shared set.
    pub fn take_bell(&self, set: Option<u32>, bell: u32) {
        self.with_core(|core| match set {
            Some(set) => core.take_shared_bell(set, bell),
            None => core.take_bell(bell),
        });
    }

    /// Shares doorbells with another process, which rings them (dedicated mode only). The process writes to
    /// `wake` after it has rung while the engine sleeps ([`Doorbells::is_asleep`]). Returns the number of
    /// the set.
    ///
    /// # Errors
    /// The error of the system if it cannot watch `wake`.
    pub fn share_bells(&self, doorbells: Doorbells<Bytes>, wake: OwnedFd) -> io::Result<u32> {
        self.with_core(|core| core.share_bells(doorbells, wake))
    }

    /// Removes a shared set, after its process and that process's queue pairs have ended.
    pub fn unshare_bells(&self, set: u32) {
        self.with_core(|core| core.unshare_bells(set));
    }

    /// Assigns a doorbell of a shared set to a queue pair or command portal; `None` if there is no such set.
    pub fn assign_shared_bell(&self, set: u32, owner: BellOwner) -> Option<u32> {
        self.with_core(|core| core.assign_shared_bell(set, owner))
    }

    /// Makes the processes of a shared set a tenant of their own in the scheduling of the engine, to which a
    /// queue pair belongs.
    ///
    /// # Errors
    /// `Unknown`: there is no such queue pair.
    pub fn assign_tenant(&self, set: u32, qp: Qpn) -> Result<(), CommandError> {
        self.with_core(|core| core.assign_tenant(set, qp))
    }

    /// Makes the port show the fields of received frames' IP headers, from which the header of a received
    /// datagram is built.
    pub fn show_ip_fields(&self) {
        self.with_core(|core| core.port.show_ip_fields());
    }

    /// Attaches a queue pair to a multicast group, and makes the port join it. The NIC receives its own
    /// frames to the group from now on.
    ///
    /// # Errors
    /// The NIC or the port refuses.
    pub fn attach_multicast(&self, qp: Qpn, group: Endpoint) -> Result<(), AttachRefusal> {
        let address = group.address;
        let loops = self.with_core(|core| core.port.loops_back_multicast() || core.peers.knows(self.id));
        if !loops {
            // The link stays as long as the engine.
            self.loop_back().map_err(AttachRefusal::Link)?;
        }
        self.with_core(|core| {
            core.ask::<()>(Command::AttachMulticast { qp, group: address }).map_err(AttachRefusal::Nic)?;
            core.port.join(group).map_err(|error| {
                let undone = core.ask::<()>(Command::DetachMulticast { qp, group: address });
                debug_assert!(undone.is_ok(), "the queue pair was attached above");
                AttachRefusal::Port(error)
            })
        })
    }

    /// Detaches a queue pair from a multicast group, and makes the port leave it.
    ///
    /// # Errors
    /// `Unknown`: the queue pair is not attached to the group.
    pub fn detach_multicast(&self, qp: Qpn, group: Endpoint) -> Result<(), CommandError> {
        self.with_core(|core| {
            core.ask::<()>(Command::DetachMulticast { qp, group: group.address })?;
            core.port.leave(group);
            Ok(())
        })
    }

    /// Makes the program with this QPN range of the port's addresses a neighbour, to which frames go by
    /// `link`.
    ///
    /// # Errors
    /// The port takes no neighbour.
    pub fn add_neighbour(&self, range: u8, link: Link) -> Result<Peer, AttachError> {
        self.with_core(|core| core.port.add_neighbour(range, link))
    }

    /// Returns the peer that stands for the link to a neighbour, with one user more, and the link's window.
    pub fn use_neighbour(&self, range: u8) -> Option<(Peer, Option<u32>)> {
        self.with_core(|core| {
            let peer = core.port.neighbour(range)?;
            core.peers.retain(peer);
            Some((peer, core.port.window_to(peer)))
        })
    }

    /// Returns whether a link leads to this QPN range.
    pub fn has_neighbour(&self, range: u8) -> bool {
        self.with_core(|core| core.port.neighbour(range).is_some())
    }

    /// Gives the port a share of a further address. Returns the number of that address; the number of the
    /// port's own address is 0.
    ///
    /// # Errors
    /// The port takes no further address.
    pub fn add_address(&self, share: &SharedEndpoint) -> Result<u8, AttachError> {
        self.with_core(|core| core.port.add_address(share))
    }

    /// Returns a further address of the port, and the largest number of bytes of a packet from it; `None` if
    /// there is no address with this number.
    pub fn further_address(&self, number: u8) -> Option<(Endpoint, usize)> {
        self.with_core(|core| core.port.further_address(number))
    }

    /// Tells the port the addresses of this host, from which neighbours send.
    pub fn learn_local(&self, addresses: &[Address]) {
        self.with_core(|core| core.port.learn_local(addresses));
    }

    /// Checks that the NIC may read these bytes by a local key.
    ///
    /// # Errors
    /// The reason of the refusal.
    pub fn probe(&self, pd: Pd, key: Key, addr: u64, len: usize) -> Result<(), AccessError> {
        self.with_core(|core| core.mem.probe(pd, key, addr, len, Access::NONE))
    }
}

impl Uplink for Engine {
    fn facts(&self) -> PortFacts {
        self.facts
    }

    fn id(&self) -> EngineId {
        self.id
    }

    fn irn_reach(&self) -> u32 {
        self.with_core(|core| core.nic.irn().reach())
    }

    fn reuse_link(&self, id: EngineId) -> Option<Peer> {
        self.with_core(|core| core.peers.reuse(id))
    }

    fn loop_back(&self) -> Result<Peer, ConnectError> {
        if let Some(peer) = self.reuse_link(self.id) {
            return Ok(peer);
        }
        let link = Link::loopback(DEFAULT_GEOMETRY).map_err(|errno| ConnectError::Link(errno.into()))?;
        self.add_link(self.id, self.facts.endpoint, link)
    }

    fn take_link(&self, from: &LinkPeer, name: &str, patience: Duration) -> Result<Peer, ConnectError> {
        let link = shm::connect(name, Admit::SameUser, patience).map_err(ConnectError::Link)?;
        self.add_link(from.id, from.endpoint, link)
    }

    fn offer_link(&self) -> Result<Box<dyn LinkOfferer + '_>, ConnectError> {
        // The listener serves only one client, so that the connection identifies the client.
        let listener = shm::Listener::new(DEFAULT_GEOMETRY, Admit::SameUser).map_err(ConnectError::Link)?;
        Ok(Box::new(OfferedLink { engine: self, listener }))
    }

    fn reach(&self, address: u8, endpoint: Endpoint, patience: Duration) -> Result<Peer, ConnectError> {
        if !endpoint.address.is_multicast()
            && let Some(resolver) = self.with_core(|core| core.port.resolver())
        {
            // Waited for outside the engine's lock, because the engine has other peers to serve.
            let way = resolver.wait(endpoint, patience);
            way.map_err(|error| ConnectError::Attach(AttachError::Port(error.to_string())))?;
        }
        self.with_core(|core| core.use_endpoint(address, endpoint)).map_err(ConnectError::Attach)
    }

    /// Counts one user of a peer less. The port forgets an endpoint with its last user.
    fn release_peer(&self, peer: Peer) {
        self.with_core(|core| core.release_peer(peer));
    }
}

/// A link that an engine offers to a peer.
struct OfferedLink<'a> {
    engine: &'a Engine,
    listener: shm::Listener,
}

impl LinkOfferer for OfferedLink<'_> {
    fn name(&self) -> &str {
        self.listener.name()
    }

    fn give(
        self: Box<Self>,
        to: &LinkPeer,
        stream: Option<&mut TcpStream>,
        patience: Duration,
    ) -> Result<Peer, ConnectError> {
        self.engine.give_link(&self.listener, to, stream, patience)
    }
}

impl Engine {
    /// Waits until another engine has taken the link that a listener offers, as long as the TCP connection
    /// `stream` of its program stays open.
    ///
    /// # Errors
    /// The other engine has not taken the link in time, or its program has hung up.
    pub fn give_link(
        &self,
        listener: &shm::Listener,
        to: &LinkPeer,
        stream: Option<&mut TcpStream>,
        patience: Duration,
    ) -> Result<Peer, ConnectError> {
        let link = give_link(listener, stream, patience)?;
        self.add_link(to.id, to.endpoint, link)
    }

    /// Adds a link to the engine with this id at an endpoint.
    fn add_link(&self, id: EngineId, endpoint: Endpoint, link: Link) -> Result<Peer, ConnectError> {
        self.with_core(|core| {
            if core.peers.count() >= core.port.max_peers()
                && let Some(unused) = core.peers.evict()
            {
                core.port.remove(unused);
            }
            let peer = core.port.add_link(link, endpoint).map_err(ConnectError::Attach)?;
            core.peers.add(id, peer);
            Ok(peer)
        })
    }
}

impl Device for Engine {
    fn execute(&self, command: Command) -> Result<Reply, DeviceError> {
        Ok(Engine::execute(self, command)?)
    }

    fn hand(&self, part: HandedPart) -> Result<PartNumber, DeviceError> {
        Ok(Engine::hand(self, part))
    }

    fn allocate(&self, len: usize) -> Result<Bytes, DeviceError> {
        Ok(Bytes::heap(len)?)
    }

    fn memory(&self, command: MemoryCommand<'_>) -> Result<MemoryReply, DeviceError> {
        Ok(self.table().execute(command)?)
    }

    fn assign_bell(&self, owner: BellOwner) -> Result<Doorbell, DeviceError> {
        Ok(Doorbell { owner, index: self.with_core(|core| core.assign_bell(owner)) })
    }

    fn ring(&self, bell: Doorbell) -> Result<(), Reentered> {
        match bell.owner {
            BellOwner::QueuePair(qp) => Engine::ring(self, qp, bell.index),
            BellOwner::Portal(portal) => {
                self.ring_portal(portal);
                Ok(())
            }
        }
    }

    fn take_event(&self) -> Option<AsyncEvent> {
        self.events.take().map(|event| event.event)
    }
}
