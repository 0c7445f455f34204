//! [`LinkedPort`]: a UDP port and a shared-memory port combined.

use super::further::{self, FurtherAddresses};
use super::ranges::Ranges;
use super::wanted::Wanted;
use crate::clock::{Clock, Monotonic};
use crate::shm::{DEFAULT_GEOMETRY, Limits, Link, SetupError, ShmPort};
use crate::udp::{GroupError, PeerError, UdpPort};
use crate::{Counters, Port};
use remora_wire::Qpn;
use remora_wire::frame::{Address, Class, Egress, Endpoint, Ingress, IpFields, Lease, Origin, Peer, Start};
use rustix::io::Errno;
use std::os::fd::RawFd;
use std::sync::Arc;

/// Bit that is set in the number of a peer reached over a link. Numbers of UDP peers are smaller, and its
/// strangers have both upper bits set.
const LINK: u32 = 1 << 30;
/// The two upper bits of a peer's number.
const KIND: u32 = 3 << 30;
/// Maximum number of links, including those whose program has ended while a queue pair still uses them.
const MAX_LINKS: u32 = 256;
/// Interval in nanoseconds at which the socket is polled while links are busy: each poll is a system call.
const SOCKET_EVERY: u64 = 20_000;
/// Time in nanoseconds after the last frame during which links count as busy.
const BUSY: u64 = 200_000;
/// Maximum number of addresses of this host that the port remembers.
const MAX_LOCAL: usize = 128;

/// The port of a program on one or several shared addresses, with links to its neighbours.
#[derive(Debug)]
pub struct LinkedPort {
    udp: UdpPort,
    further: FurtherAddresses,
    links: ShmPort,
    ranges: Ranges,
    wanted: Option<Arc<Wanted>>,
    /// The UDP peer that stands for the shared address.
    own: Option<Peer>,
    /// The port that has lent the last buffer.
    lease: LeaseFrom,
    polling: Polling,
    /// The present and former addresses of this host, from which neighbours send.
    local: Vec<Address>,
    /// Number of frames received over links with a source that is not an address of this host.
    forged: u64,
    /// IP header fields of the frames that are lent next.
    fields: IpFields,
    /// True once the port must report the IP header fields of received frames, also for addresses added
    /// later.
    shows_fields: bool,
}

/// The port that has lent a buffer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum LeaseFrom {
    Udp,
    Link,
    /// The further address with this number.
    Further(usize),
}

/// State that decides when the socket is polled.
#[derive(Debug, Default)]
struct Polling {
    clock: Monotonic,
    /// True if a frame was sent over a link since the last receive.
    used: bool,
    /// Time until which links count as busy; 0 if they are not.
    busy_until: u64,
    /// Time of the next poll of the socket while links are busy.
    socket_at: u64,
    /// True if the last receive did not poll the socket.
    skipped: bool,
}

impl Polling {
    /// Returns whether this receive must poll the socket.
    #[inline]
    fn is_due(&mut self) -> bool {
        if self.busy_until == 0 && !self.used {
            return true;
        }
        let now = self.clock.now_ns().max(1);
        if std::mem::take(&mut self.used) {
            self.busy_until = now + BUSY;
        }
        if now >= self.busy_until {
            self.busy_until = 0;
            return true;
        }
        let due = now >= self.socket_at;
        if due {
            self.socket_at = now + SOCKET_EVERY;
        }
        due
    }
}

/// Returns whether the peer is reached over a link.
#[inline(always)]
fn is_link(peer: Peer) -> bool {
    peer.0 & KIND == LINK
}

/// Returns the peer's number in the table of links.
#[inline(always)]
fn inner(peer: Peer) -> Peer {
    Peer(peer.0 & !KIND)
}

/// Returns the number by which callers know a link.
#[inline(always)]
fn outer(link: Peer) -> Peer {
    Peer(link.0 | LINK)
}

/// Returns whether the IP header of a frame has this source.
#[inline]
fn is_from(frame: &[u8], source: &Address) -> bool {
    match frame.first().map(|byte| byte >> 4) {
        Some(4) => frame.get(12..16) == Some(&source.0[12..]) && source.is_ipv4(),
        Some(6) => frame.get(8..24) == Some(&source.0),
        _ => false,
    }
}

impl LinkedPort {
    /// Maximum number of addresses of the port, including its first one.
    pub const MAX_ADDRESSES: usize = further::MAX_FURTHER + 1;

    /// Creates a port without links, over a share of an address. The port requests links by `wanted`.
    ///
    /// # Errors
    /// The error of the system if it cannot create a descriptor.
    pub fn new(udp: UdpPort, wanted: Option<Arc<Wanted>>) -> Result<LinkedPort, Errno> {
        let limits = Limits { links: MAX_LINKS, frame: DEFAULT_GEOMETRY.max_frame() };
        let links = ShmPort::new(udp.endpoint(), limits)?;
        Ok(LinkedPort {
            local: vec![udp.endpoint().address],
            udp,
            further: FurtherAddresses::default(),
            links,
            ranges: Ranges::new(),
            wanted,
            own: None,
            lease: LeaseFrom::Udp,
            polling: Polling::default(),
            forged: 0,
            fields: IpFields::default(),
            shows_fields: false,
        })
    }

    /// Adds a further address to the port and returns its number. The first address of the port has number
    /// 0.
    ///
    /// # Errors
    /// Returns the port if the maximum number of addresses is reached.
    pub fn add_address(&mut self, mut udp: UdpPort) -> Result<usize, Box<UdpPort>> {
        if self.further.is_full() {
            return Err(Box::new(udp));
        }
        if self.shows_fields {
            udp.show_ip_fields();
        }
        self.learn_local(&[udp.endpoint().address]);
        Ok(self.further.add(udp))
    }

    /// Adds addresses of this host: frames that neighbours send from them are accepted from now on. If
    /// there are too many, the oldest ones are forgotten.
    pub fn learn_local(&mut self, addresses: &[Address]) {
        for address in addresses {
            if !self.local.contains(address) {
                if self.local.len() >= MAX_LOCAL {
                    // The first one is the port's own and is kept.
                    self.local.remove(1);
                }
                self.local.push(*address);
            }
        }
    }

    /// Returns the UDP port of the further address with this number.
    pub fn further_port(&self, address: usize) -> Option<&UdpPort> {
        self.further.port(address)
    }

    /// Adds a link, over which frames to this QPN range of the shared address are sent from now on.
    ///
    /// # Errors
    /// `TooManyLinks`; `BadOffer` if the frames of the link are too small.
    pub fn add_neighbour(&mut self, range: u8, link: Link) -> Result<Peer, SetupError> {
        let added = self.links.add_link(link)?;
        self.ranges.set(range, added);
        Ok(outer(added))
    }

    /// Returns the peer of the open link to this QPN range; `None` if there is none.
    pub fn neighbour(&self, range: u8) -> Option<Peer> {
        self.ranges.get(range).filter(|link| self.links.is_open(*link)).map(outer)
    }

    /// Returns the peer with this endpoint, as reached from the first address, like [`UdpPort::peer`].
    ///
    /// # Errors
    /// The errors of [`UdpPort::peer`].
    pub fn peer(&mut self, endpoint: Endpoint) -> Result<Peer, PeerError> {
        let peer = self.udp.peer(endpoint)?;
        if endpoint == self.udp.endpoint() {
            self.own = Some(peer);
        }
        Ok(peer)
    }

    /// Returns the peer with this endpoint, as reached from the address with this number. `None` if there
    /// is no such address.
    ///
    /// # Errors
    /// The errors of [`UdpPort::peer`].
    pub fn peer_at(&mut self, address: usize, endpoint: Endpoint) -> Option<Result<Peer, PeerError>> {
        if address == 0 { Some(self.peer(endpoint)) } else { self.further.peer(address, endpoint) }
    }

    /// Returns the peer of a multicast group, as reached from the address with this number. `None` if there
    /// is no such address.
    ///
    /// # Errors
    /// The errors of [`UdpPort::group`].
    pub fn group_at(&mut self, address: usize, group: Endpoint) -> Option<Result<Peer, GroupError>> {
        if address == 0 { Some(self.udp.group(group)) } else { self.further.group(address, group) }
    }

    /// Joins a multicast group on the interfaces of all addresses of the group's family.
    ///
    /// # Errors
    /// The errors of [`UdpPort::join`], if no interface can join.
    pub fn join(&mut self, group: Endpoint) -> Result<(), GroupError> {
        self.each_of_family(group, |port| port.join(group))
    }

    /// Leaves a multicast group, like [`UdpPort::leave`].
    ///
    /// # Errors
    /// The errors of [`UdpPort::leave`].
    pub fn leave(&mut self, group: Endpoint) -> Result<(), GroupError> {
        self.each_of_family(group, |port| port.leave(group))
    }

    /// Applies `change` to all ports of the group's family; `Ok` if it succeeds for one of them. Addresses
    /// that are added later are not members.
    fn each_of_family(
        &mut self,
        group: Endpoint,
        change: impl Fn(&mut UdpPort) -> Result<(), GroupError>,
    ) -> Result<(), GroupError> {
        let is_ipv4 = group.address.is_ipv4();
        let mut changed = change(&mut self.udp);
        for port in self.further.ports_mut().filter(|port| port.endpoint().address.is_ipv4() == is_ipv4) {
            let other = change(port);
            changed = if changed.is_ok() { changed } else { other };
        }
        changed
    }

    /// Returns a neighbour that was lost and has not been reported yet. Frames to it are dropped from now
    /// on.
    pub fn take_lost(&mut self) -> Option<Peer> {
        let lost = self.links.take_lost()?;
        self.ranges.forget(lost);
        Some(outer(lost))
    }

    /// Frees the number of a peer that no queue pair uses any more, and closes its link if it has one.
    pub fn remove(&mut self, peer: Peer) {
        if is_link(peer) {
            self.ranges.forget(inner(peer));
            self.links.remove_link(inner(peer));
            return;
        }
        let (address, there) = further::split(peer);
        if address > 0 {
            return self.further.remove(address, there);
        }
        self.udp.remove(peer);
        if self.own == Some(peer) {
            self.own = None;
        }
    }

    /// Returns whether the peer is reached over a link.
    pub fn is_link(&self, peer: Peer) -> bool {
        is_link(peer)
    }

    /// Returns the number of links to living neighbours.
    pub fn open_links(&self) -> usize {
        self.links.open_links()
    }

    /// Returns the counters of the links only.
    pub fn link_counters(&self) -> Counters {
        let counters = self.links.counters();
        Counters { malformed: counters.malformed + self.forged, ..counters }
    }

    /// Returns the UDP port of the first address.
    pub fn udp(&self) -> &UdpPort {
        &self.udp
    }
}

impl LinkedPort {
    /// Lends a buffer at the address at which the peer was created.
    #[inline(never)]
    fn lend_at(&mut self, peer: Peer, class: Class, len: usize) -> Option<Lease<'_>> {
        let (address, there) = further::split(peer);
        if self.further.port(address).is_none() {
            return self.udp.lend(peer, class, len);
        }
        self.lease = LeaseFrom::Further(address);
        let port = self.further.sending(address)?;
        port.mark(self.fields);
        port.lend(there, class, len)
    }

    /// Receives over links. Returns the number of frames, and whether the socket must be polled.
    #[inline]
    fn receive_by_links(&mut self, budget: usize, take: &mut impl FnMut(Ingress<'_>)) -> (usize, bool) {
        let due = self.polling.is_due();
        self.polling.skipped = !due;
        let local = &self.local;
        let ranges = &self.ranges;
        let forged = &mut self.forged;
        // The budget is shared so that neither links nor socket starve the other.
        let share = if due { budget.div_ceil(2) } else { budget };
        let taken = self.links.receive(share, &mut |frame| {
            let Some(Origin::Link(link)) = frame.origin else { return };
            let Some(range) = ranges.range_of(link) else { return };
            if local.iter().any(|address| is_from(frame.bytes, address)) {
                take(Ingress { origin: Some(Origin::Neighbour(range)), ..frame });
            } else {
                *forged += 1;
            }
        });
        self.polling.used |= taken > 0;
        (taken, due)
    }

    /// Receives over links, at the first address and at the further ones. The budget is shared so that none
    /// starves the others.
    #[inline(never)]
    fn receive_at_all(&mut self, budget: usize, take: &mut impl FnMut(Ingress<'_>)) -> usize {
        let mut taken = 0;
        let mut due = true;
        self.polling.skipped = false;
        if self.links.count() > 0 {
            (taken, due) = self.receive_by_links(budget, take);
        }
        let left = budget.saturating_sub(taken);
        if due && left > 0 {
            taken += self.udp.receive(left.div_ceil(2), take);
        }
        let now = self.polling.clock.now_ns().max(1);
        taken + self.further.receive(now, budget.saturating_sub(taken), take)
    }
}

impl Egress for LinkedPort {
    #[inline(always)]
    fn start(&self, peer: Peer) -> Start {
        if is_link(peer) { Start::Ip } else { Start::Bth }
    }

    #[inline(always)]
    fn seals(&self, peer: Peer) -> bool {
        !is_link(peer)
    }

    #[inline]
    fn nearest(&mut self, peer: Peer, qp: Qpn) -> Peer {
        if self.own != Some(peer) {
            let (address, there) = further::split(peer);
            if address == 0 || !self.further.is_own(address, there) {
                return peer;
            }
        }
        let range = qp.range();
        if let Some(link) = self.neighbour(range) {
            return link;
        }
        if self.ranges.must_ask(range)
            && let Some(wanted) = &self.wanted
        {
            wanted.add(range);
        }
        peer
    }

    #[inline(always)]
    fn mark(&mut self, fields: IpFields) {
        self.fields = fields;
        self.udp.mark(fields);
    }

    #[inline(always)]
    fn lend(&mut self, peer: Peer, class: Class, len: usize) -> Option<Lease<'_>> {
        if is_link(peer) {
            self.lease = LeaseFrom::Link;
            return self.links.lend(inner(peer), class, len);
        }
        self.lease = LeaseFrom::Udp;
        if self.further.is_empty() {
            return self.udp.lend(peer, class, len);
        }
        self.lend_at(peer, class, len)
    }

    fn peer_of(&mut self, endpoint: &Endpoint, origin: Option<Origin>) -> Option<Peer> {
        self.udp.peer_of(endpoint, origin)
    }

    #[inline]
    fn has_space_per_peer(&self) -> bool {
        self.links.count() > 0 || !self.further.is_empty()
    }

    #[inline(always)]
    fn commit(&mut self) {
        match self.lease {
            LeaseFrom::Link => {
                self.polling.used = true;
                self.links.commit();
            }
            LeaseFrom::Udp => self.udp.commit(),
            LeaseFrom::Further(address) => {
                if let Some(port) = self.further.sending(address) {
                    port.commit();
                }
            }
        }
    }

    #[inline]
    fn flush(&mut self) {
        self.links.flush();
        self.udp.flush();
        self.further.flush();
    }
}

impl Port for LinkedPort {
    #[inline]
    fn receive(&mut self, budget: usize, take: &mut impl FnMut(Ingress<'_>)) -> usize {
        if !self.further.is_empty() {
            return self.receive_at_all(budget, take);
        }
        if self.links.count() == 0 {
            self.polling.skipped = false;
            return self.udp.receive(budget, take);
        }
        let (taken, due) = self.receive_by_links(budget, take);
        let left = budget.saturating_sub(taken);
        if due && left > 0 { taken + self.udp.receive(left, take) } else { taken }
    }

    fn receives_to_silence(&self) -> u32 {
        // A receive that has not polled every socket proves nothing.
        let skipped = self.polling.skipped || self.further.has_skipped();
        if skipped { u32::MAX } else { self.links.receives_to_silence() }
    }

    fn endpoint(&self) -> Endpoint {
        self.udp.endpoint()
    }

    fn source(&self) -> Endpoint {
        self.udp.source()
    }

    fn source_to(&self, peer: Peer) -> Endpoint {
        let (address, _) = further::split(peer);
        let other = || self.further.port(address).filter(|_| !is_link(peer)).map(Port::source);
        other().unwrap_or_else(|| self.udp.source())
    }

    fn max_transport_bytes(&self) -> usize {
        self.udp.max_transport_bytes()
    }

    fn arm(&mut self) -> bool {
        let links = self.links.arm();
        let further = self.further.arm();
        self.udp.arm() || links || further
    }

    fn disarm(&mut self) {
        self.links.disarm();
        self.udp.disarm();
        self.further.disarm();
        // The socket may contain the frame that woke the sleeper.
        self.polling.socket_at = 0;
    }

    fn poll_fds(&self, out: &mut Vec<RawFd>) {
        self.udp.poll_fds(out);
        self.links.poll_fds(out);
        self.further.poll_fds(out);
    }

    fn show_ip_fields(&mut self) {
        self.shows_fields = true;
        self.udp.show_ip_fields();
        self.further.show_ip_fields();
    }

    fn counters(&self) -> Counters {
        let mut counters = self.udp.counters();
        counters.add(&self.link_counters());
        self.further.add_counters(&mut counters);
        counters
    }

    fn peer_endpoint(&self, peer: Peer) -> Option<Endpoint> {
        let (address, there) = further::split(peer);
        match self.further.port(address) {
            _ if is_link(peer) => None,
            Some(port) => port.peer_endpoint(there),
            None => self.udp.peer_endpoint(peer),
        }
    }
}
