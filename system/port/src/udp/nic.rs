//! [`UdpPort`]: the port itself, composed of the socket, the train, the inbox and the peers.

use super::groups::{self, GroupError, Groups};
use super::inbox::Inbox;
use super::options::{OpenError, Options};
use super::peers::{PeerError, Peers};
use super::reading::{Change, Reading};
use super::shared::{Shared, SharedEndpoint};
use super::socket::{MAX_DATAGRAM, Socket};
use super::train::{MAX_SEGMENTS, Train};
use super::{Arrival, address, mtu};
use crate::return_stack::ReturnStack;
use crate::{Counters, Port};
use remora_wire::frame::{Class, Egress, Endpoint, Ingress, IpFields, Lease, Origin, Peer, Start};
use rustix::io::Errno;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, RawFd};

/// Number of calls without a frame (an empty datagram, a pending ICMP error) after which one `receive`
/// returns, so that a flood of them cannot hold the caller.
const FRUITLESS_PER_RECEIVE: u32 = 8;

/// A RoCE v2 port over one UDP socket; see the [module](super) for its design.
#[derive(Debug)]
pub struct UdpPort {
    socket: Socket,
    /// The socket that sends, if it is not the one that receives.
    sender: Option<Socket>,
    /// The port's share of an address; `None` if it has the address alone.
    shared: Option<Box<Shared>>,
    /// True if all frames arrive on the port's own socket: the address is not shared, and the port is a
    /// member of no group.
    plain: bool,
    peers: Peers,
    groups: Groups,
    train: Train,
    /// IP header fields of the frames that are lent next. `written` are those that the sending socket
    /// writes.
    fields: IpFields,
    written: IpFields,
    /// True once the kernel must report the IP header fields of received frames.
    shows_fields: bool,
    inbox: Inbox,
    /// Buffer for a frame that cannot be sent (unknown peer, impossible length). Empty until the first such
    /// frame.
    waste: Vec<u8>,
    /// True if the last lease was of `waste`.
    wasted: bool,
    /// True if frames have an IPv4 identification.
    has_id: bool,
    max_transport_bytes: usize,
    reading: Reading,
    returns: ReturnStack,
    /// Errno with which the kernel refused the train that is being sent frame by frame.
    refused: Option<Errno>,
    counters: Counters,
    udp: UdpCounters,
}

/// Counters of a UDP port in addition to [`Counters`]. They only increase.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct UdpCounters {
    /// Calls that sent a train of two or more frames.
    pub trains_sent: u64,
    /// Calls that received two or more frames.
    pub trains_received: u64,
    /// Number of times that the kernel had no space (`EAGAIN`, `ENOBUFS`); the frames are kept and sent
    /// later.
    pub would_block: u64,
    /// Frames dropped because they are too long for the path or the device (`EMSGSIZE`).
    pub too_long: u64,
    /// Frames dropped because the peer's number is unknown.
    pub unknown_peer: u64,
    /// Trains that were refused although their frames could be sent one by one: the kernel or a device
    /// cannot cut trains. No train is sent from then on, so this is 0 or 1.
    pub cannot_cut: u64,
    /// Number of times that receiving joined trains failed while receiving single datagrams worked, or that
    /// joining could not be enabled. The port then stops joining, so this is 0 or 1.
    pub cannot_join: u64,
    /// Frames of other QPN ranges that reached this port's share of an address; they were passed to the
    /// address's owner.
    pub strays: u64,
    /// Frames that the owner of a shared address has handed over.
    pub forwarded: u64,
    /// Failed calls by errno: of sending (each dropped one frame or train) and of receiving.
    pub errnos: Errnos,
}

/// Counts of the first 8 different errnos; `other` counts the rest.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Errnos {
    seen: [(i32, u64); 8],
    /// Failures with errnos beyond the first 8.
    pub other: u64,
}

impl Errnos {
    /// Returns the count of this errno.
    pub fn count(&self, errno: Errno) -> u64 {
        self.iter().find(|(seen, _)| *seen == errno).map_or(0, |(_, count)| count)
    }

    /// Iterates over the errnos in the order of their first occurrence, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Errno, u64)> + '_ {
        let used = self.seen.iter().filter(|(_, count)| *count > 0);
        used.map(|(raw, count)| (Errno::from_raw_os_error(*raw), *count))
    }

    fn add(&mut self, errno: Errno) {
        let raw = errno.raw_os_error();
        match self.seen.iter_mut().find(|(seen, count)| *count == 0 || *seen == raw) {
            Some(place) => *place = (raw, place.1 + 1),
            None => self.other += 1,
        }
    }
}

impl UdpPort {
    /// Opens a port on one address of this machine. RoCE's own UDP port is 4791. With another port several
    /// NICs can use one address; with 0 the kernel chooses a port.
    ///
    /// # Errors
    /// [`OpenError`]: a message of one line with the problem and its solution.
    pub fn open(local: SocketAddr, options: &Options) -> Result<UdpPort, OpenError> {
        Ok(UdpPort::over(Socket::open(local, options)?, None, options))
    }

    /// Opens a port on a share of an address. The port receives the frames of one QPN range, and sends from
    /// a UDP port of its own, so that its flows differ from those of other programs.
    ///
    /// # Errors
    /// [`OpenError`] if the system cannot create a socket.
    pub fn open_shared(endpoint: &SharedEndpoint, options: &Options) -> Result<UdpPort, OpenError> {
        let lent = endpoint.socket().map_err(|errno| OpenError::Os("dup", errno))?;
        let sender = Socket::sending(endpoint.local(), options)?;
        let mut port =
            UdpPort::over(Socket::handed_in(lent, endpoint.local(), options), Some(sender), options);
        port.shared = Some(Box::new(Shared::new(endpoint)));
        port.plain = false;
        Ok(port)
    }

    fn over(socket: Socket, sender: Option<Socket>, options: &Options) -> UdpPort {
        let local = socket.local();
        let headers = if local.is_ipv6() { 40 + 8 } else { 20 + 8 };
        let mtu = mtu::of_address(socket.as_fd(), local).unwrap_or(1500);
        let sends_trains = sender.as_ref().unwrap_or(&socket).sends_trains();
        let limit = if sends_trains { MAX_SEGMENTS } else { 1 };
        let fields = IpFields { traffic_class: options.traffic_class, hop_limit: options.ttl };
        UdpPort {
            peers: Peers::new(options.max_peers),
            groups: Groups::new(options.max_groups),
            train: Train::new(limit),
            fields,
            written: fields,
            shows_fields: false,
            inbox: Inbox::new(),
            waste: Vec::new(),
            wasted: false,
            has_id: local.is_ipv4(),
            max_transport_bytes: mtu.saturating_sub(headers).min(MAX_DATAGRAM),
            reading: Reading::new(),
            returns: ReturnStack::of_this_machine(),
            refused: None,
            counters: Counters::default(),
            udp: UdpCounters::default(),
            socket,
            sender,
            shared: None,
            plain: true,
        }
    }

    /// Returns the number of the peer with this endpoint, for use with [`Egress::lend`] until
    /// [`remove`](UdpPort::remove). Repeated calls return the same number.
    ///
    /// # Errors
    /// [`PeerError`] if the endpoint is not reachable from here or not a single host, or if the table is
    /// full.
    pub fn peer(&mut self, peer: Endpoint) -> Result<Peer, PeerError> {
        let local = self.socket.local();
        self.peers.add(address::socket_address(peer, address::scope(local)), local)
    }

    /// Frees the number of a peer or group to which nothing is sent any more. The number may stand for
    /// another peer later.
    pub fn remove(&mut self, peer: Peer) {
        self.send_train_of(peer);
        self.peers.remove(peer);
    }

    /// Sends the frames that wait for a peer whose number is about to be reused, or drops them.
    fn send_train_of(&mut self, peer: Peer) {
        if self.train.peer() == peer && !self.train.is_empty() && !self.send() {
            self.counters.send_dropped += self.train.count() as u64;
            self.train.clear();
        }
    }

    /// Joins a multicast group. Frames sent to the group are received until [`leave`](UdpPort::leave) has
    /// been called as often as `join`.
    ///
    /// # Errors
    /// [`GroupError`].
    pub fn join(&mut self, group: Endpoint) -> Result<(), GroupError> {
        let group = address::socket_address(group, address::scope(self.socket.local()));
        let joined = self.groups.join(group, &self.socket);
        self.plain = self.shared.is_none() && self.groups.is_empty();
        joined
    }

    /// Leaves a multicast group.
    ///
    /// # Errors
    /// [`GroupError::NotAMember`] if the port is not a member.
    pub fn leave(&mut self, group: Endpoint) -> Result<(), GroupError> {
        let left = self.groups.leave(address::socket_address(group, address::scope(self.socket.local())));
        self.plain = self.shared.is_none() && self.groups.is_empty();
        left
    }

    /// Returns the number of the peer that stands for a multicast group. Sending to a group does not
    /// require membership.
    ///
    /// # Errors
    /// [`GroupError`].
    pub fn group(&mut self, group: Endpoint) -> Result<Peer, GroupError> {
        let local = self.socket.local();
        let group = address::socket_address(group, address::scope(local));
        groups::check(group, local)?;
        groups::send_by_own_interface(self.sending())?;
        self.peers.put(group).map_err(GroupError::NoPeer)
    }

    /// Returns the counters that only UDP ports have.
    pub fn udp_counters(&self) -> UdpCounters {
        let (strays, forwarded) =
            self.shared.as_ref().map_or((0, 0), |shared| (shared.strays, shared.forwarded));
        UdpCounters { strays, forwarded, ..self.udp }
    }

    /// Returns the QPN range of the port's share of an address; `None` if the port has the address alone.
    pub fn qpn_range(&self) -> Option<u8> {
        self.shared.as_ref().map(|shared| shared.range())
    }

    /// Returns the socket that sends.
    #[inline(always)]
    fn sending(&self) -> &Socket {
        self.sender.as_ref().unwrap_or(&self.socket)
    }

    /// Returns the receiving socket, to query its buffers and drops.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Sends the train. Returns false if the kernel has no space; the train then waits.
    #[inline(always)]
    fn send(&mut self) -> bool {
        if self.train.is_empty() {
            return true;
        }
        if self.train.fields() != self.written {
            self.write_fields();
        }
        let Some(destination) = self.peers.address(self.train.peer()) else {
            // Unreachable: `lend` refuses unknown peers, and `remove` sends first.
            self.train.clear();
            return true;
        };
        let count = self.train.count();
        let sent = if count == 1 {
            self.sending().send_to(self.train.bytes(), destination)
        } else if self.train.is_apart() {
            return self.send_apart();
        } else {
            self.sending().send_train(self.train.bytes(), self.train.segment() as u16, destination)
        };
        self.returns.refill();
        match sent {
            Ok(()) => {
                self.counters.frames_sent += count as u64;
                self.counters.bytes_sent += self.train.bytes().len() as u64;
                self.udp.trains_sent += u64::from(count > 1);
            }
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => {
                self.udp.would_block += 1;
                return false;
            }
            Err(errno) if count == 1 => self.give_up(errno),
            Err(errno) => return self.fall_apart(errno),
        }
        self.train.left(self.has_id);
        true
    }

    /// Makes the sending socket write the IP header fields of the train's frames.
    #[cold]
    fn write_fields(&mut self) {
        self.written = self.train.fields();
        if let Err(errno) = self.sending().mark(self.written) {
            self.udp.errnos.add(errno);
            self.counters.os_errors += 1;
        }
    }

    /// Drops and counts a frame that the kernel refused for good, as a network would.
    #[cold]
    fn give_up(&mut self, errno: Errno) {
        self.counters.send_dropped += 1;
        self.udp.errnos.add(errno);
        match errno {
            Errno::MSGSIZE => self.udp.too_long += 1,
            _ => self.counters.os_errors += 1,
        }
    }

    /// Handles a train that the kernel refused: sending its frames one by one shows whether the frames or
    /// the train are the problem.
    #[cold]
    fn fall_apart(&mut self, errno: Errno) -> bool {
        self.udp.errnos.add(errno);
        self.refused = Some(errno);
        self.train.take_apart(self.has_id);
        self.send_apart()
    }

    /// Sends the rest of a train frame by frame. Returns false if the kernel has no space; the rest then
    /// waits.
    #[cold]
    fn send_apart(&mut self) -> bool {
        while let Some(frame) = self.train.next_alone() {
            let Some(destination) = self.peers.address(self.train.peer()) else { break };
            let len = frame.len();
            match self.sending().send_to(frame, destination) {
                Ok(()) => {
                    self.counters.frames_sent += 1;
                    self.counters.bytes_sent += len as u64;
                    // If only a shorter frame is accepted, that proves nothing about the others.
                    if len == self.train.segment() {
                        self.stop_trains();
                    }
                }
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => {
                    self.udp.would_block += 1;
                    return false;
                }
                Err(errno) => self.give_up(errno),
            }
            self.train.one_left();
        }
        self.train.left(self.has_id);
        true
    }

    /// Stops sending trains, because a frame could be sent alone and not in a train: the kernel, or the
    /// device on this route, cannot cut trains. The errno varies (`EIO`, `EINVAL`, `EOPNOTSUPP`, ...) and
    /// does not matter.
    fn stop_trains(&mut self) {
        let Some(errno) = self.refused.take() else { return };
        if self.train.limit() == 1 {
            return;
        }
        self.train.limit_to(1);
        self.udp.cannot_cut += 1;
        self.counters.os_errors += 1;
        tracing::warn!(
            "frames leave one by one from {}: sending several in one call (UDP_SEGMENT) failed ({errno})",
            self.socket.local()
        );
    }

    /// Lends a buffer for a frame that will be dropped. Returning `None` would mean "try later", but a
    /// later attempt would fail as well.
    #[cold]
    fn lend_waste(&mut self, peer: Peer, len: usize) -> Lease<'_> {
        if self.peers.address(peer).is_none() {
            self.udp.unknown_peer += 1;
        } else {
            self.udp.too_long += u64::from(len > 0);
        }
        self.waste.resize(len, 0);
        Lease { bytes: &mut self.waste, ip_id: 0 }
    }

    /// Polls the kernel once for a datagram or a train. Returns `Ok(false)` if nothing is waiting.
    #[inline(always)]
    fn fetch(&mut self) -> Result<bool, Errno> {
        let joined = self.reading.joined() || self.shows_fields;
        let buffer = self.inbox.buffer();
        let arrival = if joined { self.socket.recv_train(buffer) } else { self.socket.recv_from(buffer) };
        self.returns.refill();
        let arrival = match arrival {
            Err(errno) if self.reading.joined() => self.read_plainly(errno),
            arrival => arrival,
        };
        let change = match arrival? {
            Some(arrival) => self.admit(arrival),
            None => {
                if let Some(change) = self.reading.nothing() {
                    self.change(change);
                }
                return Ok(false);
            }
        };
        if let Some(change) = change {
            self.change(change);
        }
        Ok(true)
    }

    /// Puts an arrival into the inbox, unless it cannot be a frame.
    #[inline(always)]
    fn admit(&mut self, arrival: Arrival) -> Option<Change> {
        if arrival.len == 0 || arrival.truncated {
            self.counters.malformed += 1;
            return None;
        }
        self.inbox.arrived(arrival);
        if arrival.len > arrival.segment {
            self.udp.trains_received += 1;
            return self.reading.came(arrival.len.div_ceil(arrival.segment) as u32);
        }
        self.reading.came(1)
    }

    /// Reads a single datagram after reading a joined train failed: if that works, joining is the problem.
    #[cold]
    fn read_plainly(&mut self, errno: Errno) -> Result<Option<Arrival>, Errno> {
        match self.socket.recv_from(self.inbox.buffer()) {
            Ok(Some(arrival)) => {
                // A train that was joined earlier is now read as one long frame, which fails the ICRC
                // check.
                self.udp.errnos.add(errno);
                let _ = self.socket.join(false);
                self.stop_joining(errno);
                Ok(Some(arrival))
            }
            _ => Err(errno),
        }
    }

    /// Stops joining trains, because the kernel cannot do it.
    #[cold]
    fn stop_joining(&mut self, errno: Errno) {
        self.socket.never_join();
        self.reading.set_joined(self.socket.joins());
        self.udp.cannot_join += 1;
        self.counters.os_errors += 1;
        tracing::warn!(
            "frames are read one by one at {}: reading several in one call (UDP_GRO) failed ({errno})",
            self.socket.local()
        );
    }

    /// Turns joining on or off.
    #[cold]
    fn change(&mut self, change: Change) {
        let on = change == Change::Join;
        if !self.socket.can_join() {
            return self.reading.set_joined(self.socket.joins());
        }
        if let Err(errno) = self.socket.join(on) {
            return self.stop_joining(errno);
        }
        // A train that arrived between the last poll and this change is still joined, so joining is turned
        // on once more. (A train that another core queues at this moment is read as one long frame, which
        // fails the ICRC check: a lost frame.)
        let late = !on && !self.socket.is_empty() && self.socket.join(true).is_ok();
        self.reading.set_joined(on || late);
    }

    /// Receives frames that were sent to the port's own address.
    #[inline(always)]
    fn receive_own(&mut self, budget: usize, take: &mut impl FnMut(Ingress<'_>)) -> usize {
        let mut handed = 0;
        let mut fruitless = 0;
        while handed < budget && fruitless < FRUITLESS_PER_RECEIVE {
            if self.inbox.is_empty() {
                if handed > 0 && !self.reading.reads_on() {
                    break;
                }
                match self.fetch() {
                    Ok(true) => fruitless += u32::from(self.inbox.is_empty()),
                    Ok(false) => return handed,
                    Err(errno) => {
                        self.udp.errnos.add(errno);
                        self.counters.os_errors += 1;
                        fruitless += 1;
                    }
                }
            }
            let (frames, bytes) = self.inbox.hand_on(budget - handed, take);
            handed += frames;
            self.counters.frames_received += frames as u64;
            self.counters.bytes_received += bytes as u64;
        }
        self.reading.call_found_some();
        handed
    }

    /// Receives on a share of an address: first the frames that the owner hands over, then the rest. Frames
    /// of other QPN ranges go to the owner.
    #[inline(never)]
    fn receive_shared(&mut self, budget: usize, take: &mut impl FnMut(Ingress<'_>)) -> usize {
        let Some(mut shared) = self.shared.take() else { return self.receive_with_groups(budget, take) };
        let mut handed = 0;
        while shared.has_forwarded() && handed < budget.div_ceil(2) {
            let (frames, bytes) = shared.receive(budget.div_ceil(2) - handed, take);
            if frames == 0 {
                break;
            }
            handed += frames;
            self.counters.frames_received += frames as u64;
            self.counters.bytes_received += bytes as u64;
        }
        if handed < budget {
            let mut sort = |frame: Ingress<'_>| shared.sort(frame, take);
            handed += match self.groups.is_empty() {
                true => self.receive_own(budget - handed, &mut sort),
                false => self.receive_with_groups(budget - handed, &mut sort),
            };
        }
        self.shared = Some(shared);
        handed
    }

    /// Receives frames sent to groups, then the rest. Each has its turn, even under a flood of the other.
    #[inline(never)]
    fn receive_with_groups(&mut self, budget: usize, take: &mut impl FnMut(Ingress<'_>)) -> usize {
        let mut handed = 0;
        let mut fruitless = 0;
        while handed < budget.div_ceil(2) && fruitless < FRUITLESS_PER_RECEIVE {
            let Some((arrived, group, bytes)) = self.groups.receive() else { break };
            match arrived {
                Ok(arrival) if arrival.len > 0 && !arrival.truncated => {
                    handed += 1;
                    self.counters.frames_received += 1;
                    self.counters.bytes_received += bytes.len() as u64;
                    take(Ingress {
                        bytes,
                        start: Start::Bth,
                        sealed: true,
                        source: arrival.source,
                        destination: Some(group),
                        origin: arrival.fields.map(Origin::Ip),
                    });
                }
                Ok(_) => {
                    fruitless += 1;
                    self.counters.malformed += 1;
                }
                Err(errno) => {
                    fruitless += 1;
                    self.udp.errnos.add(errno);
                    self.counters.os_errors += 1;
                }
            }
        }
        handed + if handed < budget { self.receive_own(budget - handed, take) } else { 0 }
    }
}

impl Egress for UdpPort {
    fn start(&self, _: Peer) -> Start {
        Start::Bth
    }

    fn seals(&self, _: Peer) -> bool {
        true
    }

    #[inline(always)]
    fn mark(&mut self, fields: IpFields) {
        self.fields = fields;
    }

    #[inline(always)]
    fn lend(&mut self, peer: Peer, _: Class, len: usize) -> Option<Lease<'_>> {
        self.wasted = len == 0 || len > MAX_DATAGRAM || self.peers.address(peer).is_none();
        if self.wasted {
            return Some(self.lend_waste(peer, len));
        }
        // The loop runs a second time if a frame of another QPN range was waiting behind the train.
        while !self.train.takes(peer, self.fields, len) {
            if !self.send() {
                self.counters.no_room += 1;
                return None;
            }
        }
        let (bytes, place) = self.train.lend(peer, self.fields, len, || self.peers.has_ranges(peer));
        Some(Lease { bytes, ip_id: if self.has_id { place } else { 0 } })
    }

    fn peer_of(&mut self, endpoint: &Endpoint, _: Option<Origin>) -> Option<Peer> {
        let local = self.socket.local();
        let address = address::socket_address(*endpoint, address::scope(local));
        let (peer, taken) = self.peers.stranger(endpoint, address, local)?;
        if taken {
            self.send_train_of(peer);
        }
        Some(peer)
    }

    #[inline(always)]
    fn commit(&mut self) {
        if std::mem::take(&mut self.wasted) {
            self.counters.send_dropped += 1;
        } else {
            self.train.commit();
        }
    }

    #[inline(always)]
    fn flush(&mut self) {
        while self.send() && !self.train.is_empty() {}
    }
}

impl Port for UdpPort {
    #[inline(always)]
    fn receive(&mut self, budget: usize, take: &mut impl FnMut(Ingress<'_>)) -> usize {
        if self.plain {
            return self.receive_own(budget, take);
        }
        self.receive_shared(budget, take)
    }

    fn endpoint(&self) -> Endpoint {
        self.socket.endpoint()
    }

    fn source(&self) -> Endpoint {
        self.sending().endpoint()
    }

    fn max_transport_bytes(&self) -> usize {
        self.max_transport_bytes
    }

    /// A readable socket ends a sleep at once, so only frames that the kernel does not know of must prevent
    /// the sleep: frames of a train that were not handed on yet, and a train that the kernel had no space
    /// for.
    fn arm(&mut self) -> bool {
        self.flush();
        let stuck = !self.train.is_empty();
        let forwarded = self.shared.as_ref().is_some_and(|shared| shared.has_forwarded());
        !self.inbox.is_empty() || stuck || forwarded
    }

    fn disarm(&mut self) {}

    fn poll_fds(&self, out: &mut Vec<RawFd>) {
        out.push(self.socket.as_fd().as_raw_fd());
        self.groups.poll_fds(out);
        out.extend(self.shared.as_ref().map(|shared| shared.channel().as_raw_fd()));
    }

    fn show_ip_fields(&mut self) {
        if !self.shows_fields
            && let Err(errno) = self.socket.show_ip_fields()
        {
            self.udp.errnos.add(errno);
            self.counters.os_errors += 1;
        }
        self.shows_fields = true;
        self.groups.show_ip_fields();
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn peer_endpoint(&self, peer: Peer) -> Option<Endpoint> {
        self.peers.endpoint(peer)
    }
}
