//! [`XdpPort`]: the port itself, put together from an attachment and the table of peers.

use super::attachment::Attachment;
use super::bpf::Mode;
use super::neighbours::Notices;
use super::options::{OpenError, Options};
use super::peers::{Path, PeerError, Peers};
use super::queue::{Flushed, LentFrame};
use super::resolver::Resolver;
use crate::{Counters, Port, prefetch};
use remora_wire::frame::{Class, Egress, Endpoint, Ingress, Lease, Origin, Peer, Start};
use remora_wire::{ethernet, ipv4, ipv6, udp};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

/// Receives between two looks at the kernel's notices about neighbours: a look is a system call.
const LOOK_EVERY: u32 = 1 << 12;
/// The same while a peer's neighbour is not known at all, and its frames are dropped.
const LOOK_EVERY_UNKNOWN: u32 = 1 << 6;

/// A RoCE v2 port over an Ethernet interface. See the [module](super) for how it works and why.
#[derive(Debug)]
pub struct XdpPort {
    attachment: Attachment,
    peers: Peers,
    notices: Notices,
    resolver: Arc<Resolver>,
    /// Frames to this port itself, which no wire carries.
    own: VecDeque<LentFrame>,
    leased: Leased,
    /// A buffer for a frame that can never leave (unknown peer, impossible length). Empty until the first
    /// one.
    waste: Vec<u8>,
    /// Longest frame, with its Ethernet header.
    longest: usize,
    is_ipv4: bool,
    turns: u32,
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

/// Counters of an XDP port beyond [`Counters`]. They only rise.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct XdpCounters {
    /// Frames dropped because the peer's neighbour is not known (yet).
    pub unresolved: u64,
    /// Frames dropped because their length is impossible.
    pub too_long: u64,
    /// Frames dropped because the peer's number is unknown.
    pub unknown_peer: u64,
    /// Times that the kernel was asked to resolve a neighbour, or to check that it is still there.
    pub asked: u64,
    /// Times that the kernel did not take all frames at once; the rest left later.
    pub would_block: u64,
    /// Times that the interface was down or gone when frames were to leave.
    pub down: u64,
}

impl XdpPort {
    /// Opens a port on interface `name`. `address` is one of the interface's; `None` means its first.
    ///
    /// # Errors
    /// [`OpenError`]: one line with the fault and its mend.
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
            counters: Counters::default(),
            xdp: XdpCounters::default(),
            attachment,
        })
    }

    /// The number of the peer with this name, to be used with [`Egress::lend`]. Asking again gives the same
    /// number. Does not wait: while its neighbour is not known, its frames are dropped ([`Resolver::wait`]
    /// waits).
    ///
    /// # Errors
    /// [`PeerError`]: not reachable by this interface, not one host, or the table is full.
    pub fn peer(&mut self, peer: Endpoint) -> Result<Peer, PeerError> {
        if let Some(known) = self.peers.number(peer) {
            return Ok(known);
        }
        let hop = self.resolver.hop(peer)?;
        let number = self.peers.add(peer, hop)?;
        if let Some(hop) = hop {
            // `look` receives the kernel's later notices; this is the state before them.
            self.peers.learn(hop, self.resolver.known(hop)?);
        }
        Ok(number)
    }

    /// Gives the number of a peer back that nobody sends to any more. It may stand for another peer later.
    pub fn remove(&mut self, peer: Peer) {
        self.peers.remove(peer);
    }

    /// The resolver of this port's peers, which waits without holding the port up.
    pub fn resolver(&self) -> Arc<Resolver> {
        Arc::clone(&self.resolver)
    }

    /// Does the driver use our memory without copies, on all queues?
    pub fn is_zero_copy(&self) -> bool {
        self.attachment.all().iter().all(super::Queue::is_zero_copy)
    }

    /// The mode in which the interface runs our program.
    pub fn mode(&self) -> Mode {
        self.attachment.mode()
    }

    /// The interface and the queues under the port.
    pub fn attachment(&self) -> &Attachment {
        &self.attachment
    }

    /// The counters that only XDP ports have.
    pub fn xdp_counters(&self) -> XdpCounters {
        self.xdp
    }

    /// Frames for this port that the kernel dropped since the port was opened, mostly because nobody took
    /// them.
    pub fn kernel_drops(&self) -> u64 {
        let counted = self.attachment.all().iter().map(super::Queue::kernel_counters);
        counted.map(|counted| counted.dropped + counted.receive_ring_full).sum()
    }

    /// Takes the kernel's notices about neighbours.
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

    /// A buffer for a frame that will be dropped. `None` would mean "try later", and a later try would fail
    /// as well.
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

    /// No chunk is free: committed frames must leave first. On an interface that is down they never would,
    /// and a network that is down loses the frames that are sent to it.
    #[cold]
    fn make_space(&mut self, len: usize) -> bool {
        if let Flushed::Refused(_) = self.push() {
            self.leased = Leased::Waste;
            self.waste.resize(len, 0);
            return true;
        }
        let found = self.attachment.sender().lend(len).is_some();
        self.counters.no_room += u64::from(!found);
        found
    }

    #[inline(always)]
    fn push(&mut self) -> Flushed {
        let flushed = self.attachment.sender().flush();
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
        // The NIC has left the two MAC addresses open: they are in tables that it does not see.
        bytes[..6].copy_from_slice(&mac);
        bytes[6..12].copy_from_slice(&source);
        queue.commit();
        self.counters.frames_sent += 1;
        self.counters.bytes_sent += len as u64;
    }

    /// Turns the lent frame back to this port.
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
        // Powers of two, so that this is a mask and no division.
        let every = if self.peers.has_unknown() { LOOK_EVERY_UNKNOWN } else { LOOK_EVERY };
        if self.turns & (every - 1) == 0 {
            self.look();
        }
        if self.attachment.sender().is_stuck() {
            self.push();
        }
    }
}

/// Whole frames contain their sender's address.
const UNKNOWN: Endpoint = Endpoint { address: remora_wire::Address([0; 16]), udp_port: 0 };

/// Bytes of a received frame that are prefetched together: its headers and the payload of a small verb.
const ASKED: usize = 192;
/// Bytes of a cache line.
const LINE: usize = 64;

/// The sender's core has written this frame, in copy mode: its lines come together instead of one after the
/// other.
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

    /// A peer that the control path has added; else the way by which the endpoint's frame came.
    fn peer_of(&mut self, to: &Endpoint, origin: Option<Origin>) -> Option<Peer> {
        match (self.peers.number(*to), origin) {
            (Some(peer), _) => Some(peer),
            (None, Some(Origin::Mac(mac))) => Some(self.peers.stranger(to, mac)),
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

    /// A socket with frames ends a sleep at once. The kernel does not know of frames to ourselves and of
    /// frames that it had no space for.
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
