//! Datagram queue pairs (UD), and the address handles that say where each of their messages goes.

use remora_host::connect::{Agreement, ConnectError, ROUTE_PATIENCE, Request};
use remora_nic::{
    AddressVector, Command, Destination, GRH, MULTICAST_QPN, Modify, Operation, QueuePairInit,
    ReceiveRequest, SendQueue, Service, Target, WorkRequest,
};
use remora_transport::state::State;
use remora_wire::Qpn;
use remora_wire::frame::{Address, Endpoint, Peer, Route};
use std::net::{Ipv4Addr, ToSocketAddrs};
use std::sync::Arc;

use crate::completion_queue::Shared as Cq;
use crate::engine_handle::EngineHandle;
use crate::qp_handle::QpHandle;
use crate::queue_pair::{Incoming, parts};
use crate::{CompletionQueue, CreateError, PostError, ProtectionDomain, QpOptions, Srq};

/// The address of a destination of datagrams (`ibv_ah`). A clone shares the handle, which is destroyed with
/// its last clone.
#[derive(Clone, Debug)]
pub struct AddressHandle {
    inner: Arc<HandleInner>,
}

#[derive(Debug)]
struct HandleInner {
    domain: ProtectionDomain,
    engine: EngineHandle,
    number: u32,
    endpoint: Endpoint,
    /// The peer entry of the port, of which this handle is a user.
    peer: Peer,
}

impl Drop for HandleInner {
    fn drop(&mut self) {
        if self.domain.context().fork().is_child() {
            return;
        }
        self.engine.end(Command::DestroyAddressHandle { handle: self.number });
        self.engine.uplink().release_peer(self.peer);
    }
}

impl AddressHandle {
    /// Creates a handle for the NIC at `endpoint`, on a port whose addresses can be reached by themselves
    /// (`udp`, `xdp`). Shared memory is no such port.
    pub(crate) fn to_endpoint(
        domain: &ProtectionDomain,
        engine: usize,
        endpoint: Endpoint,
    ) -> Result<AddressHandle, CreateError> {
        let engine = domain.context().engine_handle(engine)?;
        let peer = engine
            .uplink()
            .reach(0, endpoint, ROUTE_PATIENCE)
            .map_err(|error| CreateError::Unreachable(error.to_string()))?;
        AddressHandle::new(domain, &engine, peer, endpoint)
    }

    /// Creates a handle that counts as a user of `peer`. On an error, the caller's use of `peer` has been
    /// released.
    fn new(
        domain: &ProtectionDomain,
        engine: &EngineHandle,
        peer: Peer,
        endpoint: Endpoint,
    ) -> Result<AddressHandle, CreateError> {
        let number = AddressHandle::create(domain, engine, peer, endpoint)
            .inspect_err(|_| engine.uplink().release_peer(peer))?;
        let domain = domain.clone();
        let engine = engine.clone();
        Ok(AddressHandle { inner: Arc::new(HandleInner { domain, engine, number, endpoint, peer }) })
    }

    /// Creates a handle in the NIC and returns its number.
    fn create(
        domain: &ProtectionDomain,
        engine: &EngineHandle,
        peer: Peer,
        endpoint: Endpoint,
    ) -> Result<u32, CreateError> {
        domain.context().refuse_child()?;
        let route = Route::new(engine.facts().source, endpoint);
        let address = AddressVector::new(peer, route);
        engine.ask(Command::CreateAddressHandle { pd: domain.pd(), address })
    }

    /// The address (GID) and UDP port of the destination.
    pub fn endpoint(&self) -> Endpoint {
        self.inner.endpoint
    }

    /// Returns queue pair `qp` of that NIC as a destination for messages with Q_Key `qkey`.
    pub fn queue(&self, qp: u32, qkey: u32) -> RemoteQueue {
        RemoteQueue { handle: self.clone(), qp, qkey, private_data: Vec::new() }
    }

    /// Returns the multicast group of this handle as a destination: all queue pairs that are attached to the
    /// group and have Q_Key `qkey`.
    pub fn group(&self, qkey: u32) -> RemoteQueue {
        self.queue(MULTICAST_QPN, qkey)
    }
}

/// The source and destination in the 40 bytes before a received datagram. The destination tells whether the
/// datagram was sent to this NIC or to a group.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct GlobalRoute {
    /// The sender's address (its GID).
    pub source: Address,
    /// The address that the datagram was sent to.
    pub destination: Address,
}

impl GlobalRoute {
    /// Parses the first bytes of a receive work request's memory. A completion with
    /// [`WorkCompletion::grh`](crate::WorkCompletion) set has such bytes. `None` if they hold no such header.
    pub fn parse(bytes: &[u8; GRH]) -> Option<GlobalRoute> {
        let (front, back) = bytes.split_first_chunk::<{ GRH - remora_wire::ipv4::LEN }>()?;
        if bytes[0] >> 4 == 6 {
            let (_, addresses) = bytes.split_first_chunk::<8>()?;
            let (source, rest) = addresses.split_first_chunk::<16>()?;
            let (destination, _) = rest.split_first_chunk::<16>()?;
            return Some(GlobalRoute { source: Address(*source), destination: Address(*destination) });
        }
        // An IPv4 header occupies the last 20 bytes, and the bytes before it are zero (IBTA annex A17).
        if front.iter().any(|byte| *byte != 0) || back[0] >> 4 != 4 {
            return None;
        }
        let address = |offset: usize| {
            Ipv4Addr::new(back[offset], back[offset + 1], back[offset + 2], back[offset + 3]).into()
        };
        Some(GlobalRoute { source: address(12), destination: address(16) })
    }
}

/// The destination of a datagram: an address handle, a queue pair's number and a Q_Key.
#[derive(Clone, Debug)]
pub struct RemoteQueue {
    handle: AddressHandle,
    qp: u32,
    qkey: u32,
    private_data: Vec<u8>,
}

impl RemoteQueue {
    /// The address handle of the destination's NIC.
    pub fn handle(&self) -> &AddressHandle {
        &self.handle
    }

    /// The destination's queue pair number, 24 bits.
    pub fn number(&self) -> u32 {
        self.qp
    }

    /// The Q_Key of messages to the destination.
    pub fn qkey(&self) -> u32 {
        self.qkey
    }

    /// The private data that the destination's program sent when the address was resolved; empty for a
    /// destination that was not resolved.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    #[inline]
    fn target(&self) -> Target {
        let destination = Destination { qp: Qpn::new(self.qp & 0x00ff_ffff), qkey: self.qkey };
        Target::Datagram { handle: self.handle.inner.number, to: destination }
    }
}

/// A queue pair of the unreliable datagram service. It needs no peer and can send as soon as it is created.
/// A message fits into one packet, and may be lost. A received message is stored after [`GRH`](crate::GRH)
/// bytes that contain its source.
///
/// ```
/// use remora_verbs::{Access, DatagramQueuePair, Device, EMPTY, GRH, QpOptions, ReceiveRequest, work};
///
/// let context = Device::udp("127.0.0.1:0")?.open()?;
/// let domain = context.alloc_pd()?;
/// let mut cq = context.create_cq(16)?;
/// let mut one = domain.create_datagram_qp(&cq, &cq, &QpOptions::default())?;
/// let mut two = domain.create_datagram_qp(&cq, &cq, &QpOptions::default())?;
/// let memory = domain.allocate(4096, Access::LOCAL_WRITE)?;
/// two.post_recv(&ReceiveRequest { id: 1, sges: &[memory.sge(0, 100)] })?;
///
/// let handle = domain.create_address_handle(0, context.port().endpoint)?;
/// one.post_send_to(&work::send_inline(2, b"hello"), &handle.queue(two.number(), two.qkey()))?;
/// let mut done = [EMPTY; 2];
/// let mut came = 0;
/// while came < 2 {
///     came += cq.wait(&mut done[came..], std::time::Duration::from_secs(1))?;
/// }
/// let received = done.iter().find(|wc| wc.id == 1).unwrap();
/// assert_eq!((received.byte_len as usize, received.src_qp), (GRH + 5, one.number()));
/// assert_eq!(memory.get::<[u8; 5]>(GRH)?, *b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DatagramQueuePair {
    handle: QpHandle,
    send: SendQueue,
    receive: Incoming,
    domain: ProtectionDomain,
    /// The multicast groups that the queue pair is attached to.
    groups: Vec<Endpoint>,
    _cqs: [Arc<Cq>; 2],
}

impl Drop for DatagramQueuePair {
    fn drop(&mut self) {
        if !self.handle.context.fork().is_child() {
            let QpHandle { engine, number, .. } = &self.handle;
            self.groups.drain(..).for_each(|group| engine.detach_multicast(*number, group));
        }
    }
}

/// The command that creates an ordinary queue pair or queue pair 1.
pub(crate) type MakeQp = fn(QueuePairInit) -> Command;

impl DatagramQueuePair {
    pub(crate) fn new(
        domain: &ProtectionDomain,
        send_cq: &CompletionQueue,
        receive_cq: &CompletionQueue,
        srq: Option<&Srq>,
        options: &QpOptions,
        make: MakeQp,
    ) -> Result<DatagramQueuePair, CreateError> {
        let (init, send_ring, receive) = parts(domain, send_cq, receive_cq, Service::Ud, srq, options)?;
        let engine = &send_cq.shared().engine;
        let handle = QpHandle::new(domain.context(), engine, Service::Ud, options, make(init))?;
        // The IP header that precedes each received datagram is built from these fields.
        engine.show_ip_fields();
        handle.bring_up_alone()?;
        Ok(DatagramQueuePair {
            handle,
            send: options.send_side(send_ring),
            receive,
            domain: domain.clone(),
            groups: Vec::new(),
            _cqs: [send_cq, receive_cq].map(|cq| Arc::clone(cq.shared())),
        })
    }

    /// The queue pair's number, 24 bits, to which peers send.
    pub fn number(&self) -> u32 {
        self.handle.number.get()
    }

    /// The Q_Key that messages to the queue pair must have.
    pub fn qkey(&self) -> u32 {
        self.handle.query().qkey.unwrap_or(self.handle.options.qkey)
    }

    /// The engine that serves the queue pair. Its address handles must belong to the same engine.
    pub fn engine(&self) -> usize {
        self.handle.engine.number()
    }

    /// The longest message in bytes: the path MTU of the port.
    pub fn longest(&self) -> u32 {
        self.handle.engine.facts().path_mtu
    }

    /// Posts a message to `destination`: a SEND, with or without immediate data.
    ///
    /// # Errors
    /// `OtherEngine` if the address handle belongs to another engine or context; `Queue` with the reason why
    /// the send queue refuses the message; `Forked` in a forked child; `Reentered`.
    #[inline]
    pub fn post_send_to(
        &mut self,
        request: &WorkRequest<'_>,
        destination: &RemoteQueue,
    ) -> Result<(), PostError> {
        self.refuse_child()?;
        if !destination.handle.inner.engine.is(&self.handle.engine) {
            return Err(PostError::OtherEngine);
        }
        self.send.push_to(request, &destination.target())?;
        self.publish_and_ring()
    }

    #[inline]
    fn publish_and_ring(&mut self) -> Result<(), PostError> {
        let before = self.send.published();
        if self.send.publish()
            && let Err(reentered) = self.handle.ring()
        {
            self.send.withdraw(before);
            return Err(reentered.into());
        }
        Ok(())
    }

    /// Attaches the queue pair to a multicast group. It then receives every message to that address and UDP
    /// port (RoCE uses 4791) with its Q_Key. The senders may be on any host that the group reaches, this host
    /// included, and the queue pair receives its own messages too. Over `udp` the system sets the reach of a
    /// group: this link, unless configured otherwise. Over shared memory a group reaches the devices that
    /// this device has ever connected with or resolved.
    ///
    /// ```
    /// use remora_verbs::{Access, Device, EMPTY, Endpoint, GRH, QpOptions, ReceiveRequest, work};
    ///
    /// let context = Device::udp("127.0.0.1:0")?.open()?;
    /// let domain = context.alloc_pd()?;
    /// let mut cq = context.create_cq(16)?;
    /// let mut qp = domain.create_datagram_qp(&cq, &cq, &QpOptions::default())?;
    /// let memory = domain.allocate(4096, Access::LOCAL_WRITE)?;
    /// qp.post_recv(&ReceiveRequest { id: 1, sges: &[memory.sge(0, 100)] })?;
    ///
    /// let group = std::net::Ipv4Addr::new(239, 255, 71, 1);
    /// let group = Endpoint { address: group.into(), udp_port: context.port().endpoint.udp_port };
    /// qp.attach(group)?;
    /// let all = domain.create_address_handle(0, group)?.group(qp.qkey());
    /// qp.post_send_to(&work::send_inline(2, b"to whom it may concern"), &all)?;
    /// let (mut done, mut came) = ([EMPTY; 2], 0);
    /// while came < 2 {
    ///     came += cq.wait(&mut done[came..], std::time::Duration::from_secs(1))?;
    /// }
    /// assert_eq!(memory.get::<[u8; 22]>(GRH)?, *b"to whom it may concern");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Nic(NotAGroup)` if the address is no multicast address; `Nic(Busy)` if the queue pair is attached to
    /// the group already; `Nic(Full)`; `Group` with the port's error; `Forked` in a forked child.
    pub fn attach(&mut self, group: Endpoint) -> Result<(), CreateError> {
        self.handle.context.refuse_child()?;
        self.handle.engine.attach_multicast(self.handle.number, group)?;
        self.groups.push(group);
        Ok(())
    }

    /// Detaches the queue pair from a multicast group.
    ///
    /// # Errors
    /// `Nic(Unknown)` if the queue pair is not attached to the group; `Forked` in a forked child.
    pub fn detach(&mut self, group: Endpoint) -> Result<(), CreateError> {
        self.handle.context.refuse_child()?;
        let place = self.groups.iter().position(|known| *known == group);
        let place = place.ok_or(CreateError::Nic(remora_nic::NicError::Unknown))?;
        self.groups.swap_remove(place);
        self.handle.engine.detach_multicast(self.handle.number, group);
        Ok(())
    }

    /// Posts several messages with one doorbell.
    ///
    /// # Errors
    /// The index of the first message that was refused, and the reason. The messages before it are posted (as
    /// by `ibv_post_send`).
    pub fn post_send_batch_to(
        &mut self,
        requests: &[(WorkRequest<'_>, &RemoteQueue)],
    ) -> Result<(), (usize, PostError)> {
        self.refuse_child().map_err(|error| (0, error))?;
        if self.handle.engine.has_caller() {
            return Err((0, PostError::Reentered));
        }
        let mut taken = requests.iter().enumerate().map(|(index, (request, destination))| {
            if !destination.handle.inner.engine.is(&self.handle.engine) {
                return Err((index, PostError::OtherEngine));
            }
            self.send.push_to(request, &destination.target()).map_err(|error| (index, error.into()))
        });
        let done = taken.find(Result::is_err).unwrap_or(Ok(()));
        self.publish_and_ring().map_err(|error| (0, error)).and(done)
    }

    /// Posts a work request that sends no packet: NOP, LOCAL_INV or BIND_MW.
    ///
    /// # Errors
    /// `NoDestination` for any other operation; `Queue` with the reason why the send queue refuses the
    /// request.
    pub fn post_local(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        self.refuse_child()?;
        if !matches!(request.operation, Operation::Nop | Operation::LocalInv(_) | Operation::BindWindow(_)) {
            return Err(PostError::NoDestination);
        }
        self.send.push(request)?;
        self.publish_and_ring()
    }

    /// Posts a receive work request. The first [`GRH`](crate::GRH) bytes of its memory receive the header,
    /// not the message.
    ///
    /// # Errors
    /// `Queue` with the reason why the receive queue refuses the request; `NoReceiveQueue` if the queue pair
    /// takes its receives from a shared receive queue.
    #[inline]
    pub fn post_recv(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.refuse_child()?;
        self.receive.post(request, || self.handle.ring())
    }

    /// The queue pair's state in the NIC.
    pub fn state(&self) -> State {
        self.handle.state()
    }

    /// Changes attributes (the Q_Key) or the state (back from SQE), as `ibv_modify_qp` does.
    ///
    /// # Errors
    /// `Modify` if the transition or a value is not allowed.
    pub fn modify(&mut self, change: &Modify) -> Result<(), CreateError> {
        self.handle.modify(change)
    }

    /// Moves the queue pair to the error state: posted work, and work posted later, completes as flushed.
    pub fn fail(&mut self) {
        self.handle.fail();
    }

    /// Asks the listener at `address` for a queue pair to send to, over any kind of port, and reports this
    /// queue pair to it.
    ///
    /// # Errors
    /// [`ConnectError`] if the listener does not answer or refuses.
    pub fn resolve(&self, address: impl ToSocketAddrs) -> Result<RemoteQueue, ConnectError> {
        self.handle.refuse_to_connect()?;
        let side = self.handle.side();
        let timeout = self.handle.options.connect_timeout;
        let (agreed, _) = remora_host::connect::connect(address, &side, timeout, |_| Ok(()))?;
        self.remote(agreed)
    }

    /// Answers a peer that resolves this queue pair; see
    /// [`ConnectRequest::accept_datagrams`](crate::ConnectRequest::accept_datagrams).
    pub(crate) fn answer(&self, request: Request) -> Result<RemoteQueue, ConnectError> {
        self.handle.refuse_to_connect()?;
        let side = self.handle.side();
        let timeout = self.handle.options.connect_timeout;
        let (agreed, _) = request.accept(&side, timeout, |_| Ok(()))?;
        self.remote(agreed)
    }

    /// Resolves two queue pairs of this process to each other. Returns the second one as a destination for
    /// the first, and the first as a destination for the second.
    ///
    /// # Errors
    /// [`ConnectError`] if the two cannot reach each other.
    pub fn resolve_pair(
        first: &DatagramQueuePair,
        second: &DatagramQueuePair,
    ) -> Result<(RemoteQueue, RemoteQueue), ConnectError> {
        first.handle.refuse_to_connect()?;
        second.handle.refuse_to_connect()?;
        let sides = (first.handle.side(), second.handle.side());
        let timeout = first.handle.options.connect_timeout;
        let agreed = remora_host::connect::connect_pair(&sides.0, &sides.1, timeout, |_, _| Ok(()))?;
        Ok((first.remote(agreed.0)?, second.remote(agreed.1)?))
    }

    fn remote(&self, agreed: Agreement) -> Result<RemoteQueue, ConnectError> {
        let Agreement { peer, remote, .. } = agreed;
        let engine = &self.handle.engine;
        let handle = AddressHandle::new(&self.domain, engine, peer, remote.endpoint);
        let handle = handle.map_err(|error| match error {
            CreateError::Nic(error) => ConnectError::Nic(error),
            _ => ConnectError::BadMessage,
        })?;
        Ok(RemoteQueue { handle, qp: remote.qp.get(), qkey: remote.qkey, private_data: remote.private_data })
    }

    #[inline]
    fn refuse_child(&self) -> Result<(), PostError> {
        if self.handle.context.fork().is_child() { Err(PostError::Forked) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    #[test]
    fn a_global_route_is_read_from_either_kind_of_header() {
        let mut grh = [0; GRH];
        assert_eq!(GlobalRoute::parse(&grh), None);
        grh[20] = 0x45;
        grh[32..].copy_from_slice(&[10, 0, 0, 1, 239, 1, 2, 3]);
        let source = Ipv4Addr::new(10, 0, 0, 1).into();
        let destination = Ipv4Addr::new(239, 1, 2, 3).into();
        assert_eq!(GlobalRoute::parse(&grh), Some(GlobalRoute { source, destination }));
        grh[3] = 1;
        assert_eq!(GlobalRoute::parse(&grh), None, "the bytes before an IPv4 header are zero");
        grh = [0; GRH];
        grh[0] = 0x60;
        (grh[8], grh[23], grh[24], grh[39]) = (0xfd, 1, 0xff, 2);
        let source = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).into();
        let destination = Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 2).into();
        assert_eq!(GlobalRoute::parse(&grh), Some(GlobalRoute { source, destination }));
    }
}
