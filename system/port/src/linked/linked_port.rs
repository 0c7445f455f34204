//! [`LinkedPort`]: the two ports as one.

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

/// Set in the number of a peer that a link leads to. Peers of the UDP port are fewer, and its strangers have
/// both upper bits.
const LINK: u32 = 1 << 30;
/// The two upper bits of a peer's number.
const KIND: u32 = 3 << 30;
/// Links at most, those included whose program is gone while a queue pair still names it.
const MAX_LINKS: u32 = 256;
/// While links are busy, the socket is polled once in so many nanoseconds: that is a system call.
const SOCKET_EVERY: u64 = 20_000;
/// Links are busy until nothing came or left by them for so many nanoseconds.
const BUSY: u64 = 200_000;
/// Addresses of this host that are known at most.
const MAX_LOCAL: usize = 128;

/// The port of a program on a shared address, or on several, that has links to its neighbours.
#[derive(Debug)]
pub struct LinkedPort {
    udp: UdpPort,
    further: FurtherAddresses,
    links: ShmPort,
    ranges: Ranges,
    wanted: Option<Arc<Wanted>>,
    /// The peer of the UDP port that stands for the shared address.
    own: Option<Peer>,
    /// Which port has lent the last buffer.
    lease: LeaseFrom,
    polling: Polling,
    /// The addresses that this host has, or had: neighbours send from them.
    local: Vec<Address>,
    /// Frames of links that name another source.
    forged: u64,
    /// The IP header's fields of the frames that are lent next.
    fields: IpFields,
    /// The ports of addresses that come say with which fields of the IP header frames come.
    shows_fields: bool,
}

/// Which port has lent a buffer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum LeaseFrom {
    Udp,
    Link,
    /// That of the further address with this number.
    Further(usize),
}

/// When the socket is polled.
#[derive(Debug, Default)]
struct Polling {
    clock: Monotonic,
    /// A frame left by a link since the last receive.
    used: bool,
    /// The end of the time in which links are busy; 0: they are not.
    busy_until: u64,
    /// The time of the next look at the socket, while links are busy.
    socket_at: u64,
    /// The last receive has not looked at it.
    skipped: bool,
}

impl Polling {
    /// Is the socket to be polled in this receive?
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

/// Does a link lead to this peer?
#[inline(always)]
fn is_link(peer: Peer) -> bool {
    peer.0 & KIND == LINK
}

/// The peer's number in the table of links.
#[inline(always)]
fn inner(peer: Peer) -> Peer {
    Peer(peer.0 & !KIND)
}

/// The number by which others know a link.
#[inline(always)]
fn outer(link: Peer) -> Peer {
    Peer(link.0 | LINK)
}

/// Does the IP header of a frame name this source?
#[inline]
fn is_from(frame: &[u8], source: &Address) -> bool {
    match frame.first().map(|byte| byte >> 4) {
        Some(4) => frame.get(12..16) == Some(&source.0[12..]) && source.is_ipv4(),
        Some(6) => frame.get(8..24) == Some(&source.0),
        _ => false,
    }
}

impl LinkedPort {
    /// Addresses that it can have, its own included.
    pub const MAX_ADDRESSES: usize = further::MAX_FURTHER + 1;

    /// A port without links, over a share of an address. It asks for links by `wanted`.
    ///
    /// # Errors
    /// The system gives no descriptor.
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

    /// Gives the port a further address; its number. The port's own is 0.
    ///
    /// # Errors
    /// The port, if there are as many as there may be.
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

    /// Learns addresses of this host: frames that neighbours send from them are taken from now on. Those that
    /// were learned first are forgotten first.
    pub fn learn_local(&mut self, addresses: &[Address]) {
        for address in addresses {
            if !self.local.contains(address) {
                if self.local.len() >= MAX_LOCAL {
                    // The first is the port's own.
                    self.local.remove(1);
                }
                self.local.push(*address);
            }
        }
    }

    /// The UDP port of the further address with this number.
    pub fn further_port(&self, address: usize) -> Option<&UdpPort> {
        self.further.port(address)
    }

    /// From now on frames to this QPN range of the shared address may leave by `link`.
    ///
    /// # Errors
    /// `TooManyLinks`; `BadOffer`: its frames would be too small.
    pub fn add_neighbour(&mut self, range: u8, link: Link) -> Result<Peer, SetupError> {
        let added = self.links.add_link(link)?;
        self.ranges.set(range, added);
        Ok(outer(added))
    }

    /// The peer that a link to this QPN range leads to.
    pub fn neighbour(&self, range: u8) -> Option<Peer> {
        self.ranges.get(range).filter(|link| self.links.is_open(*link)).map(outer)
    }

    /// As [`UdpPort::peer`], for the first address.
    ///
    /// # Errors
    /// As there.
    pub fn peer(&mut self, endpoint: Endpoint) -> Result<Peer, PeerError> {
        let peer = self.udp.peer(endpoint)?;
        if endpoint == self.udp.endpoint() {
            self.own = Some(peer);
        }
        Ok(peer)
    }

    /// The peer of this name, as the address with this number reaches it.
    ///
    /// # Errors
    /// As [`UdpPort::peer`]. `None`: there is no such address.
    pub fn peer_at(&mut self, address: usize, endpoint: Endpoint) -> Option<Result<Peer, PeerError>> {
        if address == 0 { Some(self.peer(endpoint)) } else { self.further.peer(address, endpoint) }
    }

    /// The same for a multicast group.
    ///
    /// # Errors
    /// As [`UdpPort::group`]. `None`: there is no such address.
    pub fn group_at(&mut self, address: usize, group: Endpoint) -> Option<Result<Peer, GroupError>> {
        if address == 0 { Some(self.udp.group(group)) } else { self.further.group(address, group) }
    }

    /// Joins a multicast group on the interfaces of all addresses of its family.
    ///
    /// # Errors
    /// As [`UdpPort::join`], if none can.
    pub fn join(&mut self, group: Endpoint) -> Result<(), GroupError> {
        self.each_of_family(group, |port| port.join(group))
    }

    /// As [`UdpPort::leave`].
    ///
    /// # Errors
    /// As there.
    pub fn leave(&mut self, group: Endpoint) -> Result<(), GroupError> {
        self.each_of_family(group, |port| port.leave(group))
    }

    /// `Ok` if it works for one. An address that came later is no member.
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

    /// A neighbour that was lost and has not been reported yet: frames to it are dropped from now on.
    pub fn take_lost(&mut self) -> Option<Peer> {
        let lost = self.links.take_lost()?;
        self.ranges.forget(lost);
        Some(outer(lost))
    }

    /// Gives the number of a peer back that no queue pair names any more, and closes its link if it has one.
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

    /// Does a link lead to this peer?
    pub fn is_link(&self, peer: Peer) -> bool {
        is_link(peer)
    }

    /// Links to living neighbours.
    pub fn open_links(&self) -> usize {
        self.links.open_links()
    }

    /// What was counted of links alone.
    pub fn link_counters(&self) -> Counters {
        let counters = self.links.counters();
        Counters { malformed: counters.malformed + self.forged, ..counters }
    }

    /// The port to everybody else, by the first address.
    pub fn udp(&self) -> &UdpPort {
        &self.udp
    }
}

impl LinkedPort {
    /// Lends a buffer of the address by which the peer was named.
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

    /// Receives by links; how many frames, and whether it is time to look at the socket.
    #[inline]
    fn receive_by_links(&mut self, budget: usize, take: &mut impl FnMut(Ingress<'_>)) -> (usize, bool) {
        let due = self.polling.is_due();
        self.polling.skipped = !due;
        let (local, ranges, forged) = (&self.local, &self.ranges, &mut self.forged);
        // Neither may keep the other waiting.
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

    /// Receives by links, by the first address and by the further ones. None may keep the others waiting.
    #[inline(never)]
    fn receive_at_all(&mut self, budget: usize, take: &mut impl FnMut(Ingress<'_>)) -> usize {
        let (mut taken, mut due) = (0, true);
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
    fn nearest(&mut self, peer: Peer, to: Qpn) -> Peer {
        if self.own != Some(peer) {
            let (address, there) = further::split(peer);
            if address == 0 || !self.further.is_own(address, there) {
                return peer;
            }
        }
        let range = to.range();
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

    fn peer_of(&mut self, to: &Endpoint, origin: Option<Origin>) -> Option<Peer> {
        self.udp.peer_of(to, origin)
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
        // A receive that has not looked at every socket proves nothing.
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
        // Whatever woke the sleeper may lie in the socket.
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
