//! [`XdpPort`]: the port itself, composed of an attachment and the table of peers.

use super::attachment::Attachment;
use super::bpf::Mode;
use super::neighbours::Notices;
use super::options::{OpenError, Options};
use super::peers::{Path, PeerError, Peers};
use super::queue::{Flushed, LentFrame};
use super::resolver::Resolver;
use crate::return_stack::ReturnStack;
use crate::{Counters, Port, prefetch};
use remora_wire::frame::{Class, Egress, Endpoint, Ingress, Lease, Origin, Peer, Start};
use remora_wire::{ethernet, ipv4, ipv6, udp};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

/// Number of receives between two reads of the kernel's notifications about neighbours: each read is a
/// system call.
const LOOK_EVERY: u32 = 1 << 12;
/// Number of receives between two reads while the address of a peer's neighbour is unknown.
const LOOK_EVERY_UNKNOWN: u32 = 1 << 6;

/// A RoCE v2 port over an Ethernet interface; see the [module](super) for its design.
#[derive(Debug)]
pub struct XdpPort {
    attachment: Attachment,
    peers: Peers,
    notices: Notices,
    resolver: Arc<Resolver>,
    /// Frames to this port itself, which do not go over the wire.
    own: VecDeque<LentFrame>,
    leased: Leased,
    /// Buffer for a frame that cannot be sent (unknown peer, impossible length). Empty until the first such
    /// frame.
    waste: Vec<u8>,
    /// Largest frame in bytes, with its Ethernet header.
    longest: usize,
    is_ipv4: bool,
    turns: u32,
    returns: ReturnStack,
    counters: Counters,
    xdp: XdpCounters,
}

/// The destination of the frame that is being built.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Leased {
    Nothing,
    To(Peer),
    Waste,
}

/// Counters of an XDP port in addition to [`Counters`]. They only increase.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct XdpCounters {
    /// Frames dropped because the peer's neighbour is not resolved (yet).
    pub unresolved: u64,
    /// Frames dropped because their length is impossible.
    pub too_long: u64,
    /// Frames dropped because the peer's number is unknown.
    pub unknown_peer: u64,
    /// Requests to the kernel to resolve a neighbour, or to check that it is still reachable.
    pub asked: u64,
    /// Flushes in which the kernel did not take all frames; the rest was sent later.
    pub would_block: u64,
    /// Flushes that failed because the interface was down or gone.
    pub down: u64,
}

impl XdpPort {
    /// Opens a port on interface `name`. `address` must be one of the interface's; `None` chooses its
    /// first.
    ///
    /// # Errors
    /// [`OpenError`]: a message of one line with the problem and its solution.
    pub fn open(name: &str, address: Option<IpAddr>, options: &Options) -> Result<XdpPort, OpenError> {
        let attachment = Attachment::open(name, address, options)?;
        let interface = attachment.interface();
        let failed = |errno| OpenError::Os("listening for neighbours", errno);
        let notices = Notices::of(interface.index).map_err(failed)?;
        let resolver = Arc::new(Resolver::new(interface, attachment.endpoint()).map_err(failed)?);
        let longest = (interface.mtu + ethernet::LEN).min(attachment.all()[0].longest_received());
        Ok(XdpPort {
            peers: Peers::new(options.max_peers),
            notices,
            resolver,
            own: VecDeque::with_capacity(options.send_frames as usize),
            leased: Leased::Nothing,
            waste: Vec::new(),
            longest,
            is_ipv4: attachment.endpoint().address.is_ipv4(),
            turns: 0,
            returns: ReturnStack::of_this_machine(),
            counters: Counters::default(),
            xdp: XdpCounters::default(),
            attachment,
        })
    }

    /// Returns the number of the peer with this endpoint, for use with [`Egress::lend`]. Repeated calls
    /// return the same number. Does not wait: while the peer's neighbour is not resolved, its frames are
    /// dropped ([`Resolver::wait`] waits).
    ///
    /// # Errors
    /// [`PeerError`] if the endpoint is not reachable by this interface or not a single host, or if the
    /// table is full.
    pub fn peer(&mut self, peer: Endpoint) -> Result<Peer, PeerError> {
        if let Some(known) = self.peers.number(peer) {
            return Ok(known);
        }
        let hop = self.resolver.hop(peer)?;
        let number = self.peers.add(peer, hop)?;
        if let Some(hop) = hop {
            // Later notifications are read by `look`; this is the state before them.
            self.peers.learn(hop, self.resolver.known(hop)?);
        }
        Ok(number)
    }

    /// Frees the number of a peer to which nothing is sent any more. The number may stand for another peer
    /// later.
    pub fn remove(&mut self, peer: Peer) {
        self.peers.remove(peer);
    }

    /// Returns the resolver of this port's peers, which can wait without blocking the port.
    pub fn resolver(&self) -> Arc<Resolver> {
        Arc::clone(&self.resolver)
    }

    /// Returns whether the driver uses our memory without copies on all queues.
    pub fn is_zero_copy(&self) -> bool {
        self.attachment.all().iter().all(super::Queue::is_zero_copy)
    }

    /// Returns the mode in which the interface runs our program.
    pub fn mode(&self) -> Mode {
        self.attachment.mode()
    }

    /// Returns the interface and the queues of the port.
    pub fn attachment(&self) -> &Attachment {
        &self.attachment
    }

    /// Returns the counters that only XDP ports have.
    pub fn xdp_counters(&self) -> XdpCounters {
        self.xdp
    }

    /// Returns the number of frames for this port that the kernel dropped since the port was opened, mostly
    /// because they were not taken in time.
    pub fn kernel_drops(&self) -> u64 {
        let counted = self.attachment.all().iter().map(super::Queue::kernel_counters);
        counted.map(|counted| counted.dropped + counted.receive_ring_full).sum()
    }

    /// Reads the kernel's notifications about neighbours.
    #[cold]
    fn look(&mut self) {
        let XdpPort { notices, peers, .. } = self;
        if notices.take(|hop, known| peers.learn(hop, known)) {
            return;
        }
        self.counters.os_errors += 1;
        let hops: Vec<IpAddr> = self.peers.hops().collect();
        for hop in hops {
            if let Ok(known) = self.resolver.known(hop) {
                self.peers.learn(hop, known);
            }
        }
    }

    #[cold]
    fn ask(&mut self, hop: IpAddr) {
        self.xdp.asked += 1;
        self.counters.os_errors += u64::from(self.resolver.want(hop).is_err());
    }

    /// Lends a buffer for a frame that will be dropped. Returning `None` would mean "try later", but a
    /// later attempt would fail as well.
    #[cold]
    fn lend_waste(&mut self, peer: Peer, len: usize) -> Lease<'_> {
        if self.peers.is_known(peer) {
            self.xdp.too_long += 1;
        } else {
            self.xdp.unknown_peer += 1;
        }
        self.leased = Leased::Waste;
        self.waste.resize(len, 0);
        Lease { bytes: &mut self.waste, ip_id: 0 }
    }

    /// Handles the case that no chunk is free: committed frames must be sent first. On an interface that is
    /// down they never would be; the frame is then dropped, as by a network that is down.
    #[cold]
    fn make_space(&mut self, len: usize) -> bool {
        if let Flushed::Refused(_) = self.push() {
            self.leased = Leased::Waste;
            self.waste.resize(len, 0);
            return true;
        }
        let has_space = self.attachment.sender().lend(len).is_some();
        self.counters.no_room += u64::from(!has_space);
        has_space
    }

    #[inline(always)]
    fn push(&mut self) -> Flushed {
        let flushed = self.attachment.sender().flush();
        self.returns.refill();
        match flushed {
            Flushed::All => {}
            Flushed::Some => self.xdp.would_block += 1,
            Flushed::Refused(_) => self.xdp.down += 1,
        }
        flushed
    }

    /// Sends the lent frame to `mac`.
    #[inline(always)]
    fn send(&mut self, mac: [u8; 6]) {
        let source = self.attachment.interface().mac;
        let queue = self.attachment.sender();
        let Some(bytes) = queue.lent() else { return };
        let len = bytes.len();
        // The NIC leaves the two MAC addresses open, because they are in tables that it does not see.
        bytes[..6].copy_from_slice(&mac);
        bytes[6..12].copy_from_slice(&source);
        queue.commit();
        self.counters.frames_sent += 1;
        self.counters.bytes_sent += len as u64;
    }

    /// Loops the lent frame back to this port.
    #[cold]
    fn turn_back(&mut self) {
        let Some(frame) = self.attachment.sender().keep() else { return };
        self.counters.frames_sent += 1;
        self.counters.bytes_sent += u64::from(frame.len);
        self.own.push_back(frame);
    }

    #[cold]
    fn drop_frame(&mut self, ask: Option<IpAddr>) {
        self.xdp.unresolved += 1;
        self.counters.send_dropped += 1;
        if let Some(hop) = ask {
            self.ask(hop);
        }
    }

    /// Hands on the frames that this port sent to itself.
    #[cold]
    fn receive_own(&mut self, budget: usize, take: &mut impl FnMut(Ingress<'_>)) -> usize {
        let mut handed = 0;
        while handed < budget
            && let Some(frame) = self.own.pop_front()
        {
            let queue = self.attachment.sender();
            let bytes = queue.kept(frame);
            self.counters.bytes_received += bytes.len() as u64;
            take(Ingress {
                bytes,
                start: Start::Ethernet,
                sealed: true,
                source: UNKNOWN,
                destination: None,
                origin: None,
            });
            queue.put_back(frame);
            handed += 1;
        }
        self.counters.frames_received += handed as u64;
        handed
    }

    #[inline(always)]
    fn housekeeping(&mut self) {
        self.turns = self.turns.wrapping_add(1);
        // Both intervals are powers of two, so this is a mask and not a division.
        let every = if self.peers.has_unknown() { LOOK_EVERY_UNKNOWN } else { LOOK_EVERY };
        if self.turns & (every - 1) == 0 {
            self.look();
        }
        if self.attachment.sender().is_stuck() {
            self.push();
        }
    }
}

/// The source of whole frames, which contain their sender's address.
const UNKNOWN: Endpoint = Endpoint { address: remora_wire::Address([0; 16]), udp_port: 0 };

/// Number of bytes of a received frame that are prefetched together: its headers and the payload of a small
/// verb.
const ASKED: usize = 192;
/// Size of a cache line in bytes.
const LINE: usize = 64;

/// Prefetches the first lines of a received frame together. In copy mode the sender's core has written
/// them, so they would otherwise be fetched one after the other.
#[inline(always)]
fn ask_for(frame: &[u8]) {
    for line in frame[..frame.len().min(ASKED)].chunks(LINE) {
        prefetch::for_read(line.as_ptr());
    }
}

impl Egress for XdpPort {
    fn start(&self, _: Peer) -> Start {
        Start::Ethernet
    }

    fn seals(&self, _: Peer) -> bool {
        true
    }

    #[inline(always)]
    fn lend(&mut self, peer: Peer, _: Class, len: usize) -> Option<Lease<'_>> {
        if len < ethernet::LEN || len > self.longest || !self.peers.is_known(peer) {
            return Some(self.lend_waste(peer, len));
        }
        self.leased = Leased::To(peer);
        if self.attachment.sender().lend(len).is_none() && !self.make_space(len) {
            self.leased = Leased::Nothing;
            return None;
        }
        let bytes = match self.leased {
            Leased::Waste => &mut self.waste[..],
            _ => self.attachment.sender().lent()?,
        };
        Some(Lease { bytes, ip_id: 0 })
    }

    /// Returns the peer that the control path has added, or else a stranger at the MAC address that the
    /// endpoint's frame came from.
    fn peer_of(&mut self, endpoint: &Endpoint, origin: Option<Origin>) -> Option<Peer> {
        match (self.peers.number(*endpoint), origin) {
            (Some(peer), _) => Some(peer),
            (None, Some(Origin::Mac(mac))) => Some(self.peers.stranger(endpoint, mac)),
            _ => None,
        }
    }

    #[inline(always)]
    fn commit(&mut self) {
        match std::mem::replace(&mut self.leased, Leased::Nothing) {
            Leased::Nothing => {}
            Leased::Waste => self.counters.send_dropped += 1,
            Leased::To(peer) => match self.peers.path(peer) {
                Path::Send(mac) => self.send(mac),
                Path::SendAndAsk(mac, hop) => {
                    self.send(mac);
                    self.ask(hop);
                }
                Path::Drop(ask) => self.drop_frame(ask),
                Path::Loop => self.turn_back(),
            },
        }
    }

    #[inline(always)]
    fn flush(&mut self) {
        self.push();
    }
}

impl Port for XdpPort {
    #[inline(always)]
    fn receive(&mut self, budget: usize, take: &mut impl FnMut(Ingress<'_>)) -> usize {
        self.housekeeping();
        let mut handed = if self.own.is_empty() { 0 } else { self.receive_own(budget, take) };
        for queue in self.attachment.queues() {
            let (frames, bytes) = queue.receive(budget - handed, &mut |bytes| {
                ask_for(bytes);
                take(Ingress {
                    bytes,
                    start: Start::Ethernet,
                    sealed: true,
                    source: UNKNOWN,
                    destination: None,
                    origin: None,
                });
            });
            handed += frames;
            self.counters.frames_received += frames as u64;
            self.counters.bytes_received += bytes as u64;
        }
        handed
    }

    fn endpoint(&self) -> Endpoint {
        self.attachment.endpoint()
    }

    fn max_transport_bytes(&self) -> usize {
        let ip = if self.is_ipv4 { ipv4::LEN } else { ipv6::LEN };
        self.longest - ethernet::LEN - ip - udp::LEN
    }

    /// A socket with frames ends a sleep at once, so only frames that the kernel does not know of must
    /// prevent the sleep: frames to this port itself, and frames that the kernel had no space for.
    fn arm(&mut self) -> bool {
        self.look();
        let stuck = self.push() == Flushed::Some;
        stuck || !self.own.is_empty() || self.attachment.queues().iter_mut().any(super::Queue::has_received)
    }

    fn disarm(&mut self) {}

    fn poll_fds(&self, out: &mut Vec<RawFd>) {
        out.extend(self.attachment.all().iter().map(|queue| queue.as_fd().as_raw_fd()));
    }

    fn counters(&self) -> Counters {
        let mut counters = self.counters;
        let senseless = self.attachment.all().iter().map(super::Queue::senseless);
        counters.malformed += senseless.sum::<u64>();
        counters.send_dropped += self.attachment.all()[0].refused();
        counters
    }

    fn peer_endpoint(&self, peer: Peer) -> Option<Endpoint> {
        self.peers.endpoint(peer)
    }

    fn ethernet_addresses(&self, peer: Peer) -> Option<([u8; 6], [u8; 6])> {
        Some((self.attachment.interface().mac, self.peers.mac(peer)?))
    }
}
