//! [`ShmPort`]: the port that consists of a NIC's links.

use std::os::fd::{AsFd, RawFd};

use rustix::io::Errno;

use super::link::Link;
use super::link_table::{LinkTable, State};
use super::ring::Broken;
use super::setup::SetupError;
use super::watch::{BATCH, LinkEvent, Watch};
use crate::{Address, Class, Counters, Egress, Endpoint, Ingress, Lease, Origin, Peer, Port, Start};

/// Number of frames taken from one link before the next link has its turn, and before their requests are
/// answered. It is small so that both cores work at the same time: with longer bursts each core would wait
/// for the other's burst, and return one that is as long.
const BURST: usize = 16;
/// Number of receives between two checks of the sockets while the port is not asleep: a check is a system
/// call of some 200 ns. Small enough that a host which polls on a slow timer also notices a dead peer
/// within seconds.
const LOOK_EVERY: u32 = 1 << 12;
/// Number of refusals for a full ring between two such checks: the ring of a dead peer stays full.
const LOOK_EVERY_FULL: u64 = 1 << 6;
/// Largest frame in bytes that is accepted (and dropped) for a peer that is gone.
const SINK: usize = 1 << 16;
/// Bytes of IPv6 and UDP headers, the longest headers before the BTH.
const BEFORE_BTH: usize = 48;
/// Represents no link where a link's number is expected.
const NOBODY: u32 = u32::MAX;
/// The peer that represents every multicast group: all peers that a port is linked with. Their NICs decide
/// which frames of which groups they accept.
pub const EVERYONE: Peer = Peer(u32::MAX - 1);

/// Limits of a port.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of links, including dead ones whose number was not released.
    pub links: u32,
    /// Largest frame that every link of the port must carry, in bytes from the IP header to the ICRC.
    pub frame: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { links: 1024, frame: super::DEFAULT_GEOMETRY.max_frame() }
    }
}

/// The destination of the frame that is being built.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Leased {
    Nothing,
    Link(u32),
    /// Every link: the frame of this many bytes is copied to each.
    Everyone(usize),
    /// A peer that is gone: the frame is dropped.
    Sink,
}

/// The port of a NIC (or of one of its engines) whose peers are processes of this host.
#[derive(Debug)]
pub struct ShmPort {
    endpoint: Endpoint,
    limits: Limits,
    links: LinkTable,
    watch: Watch,
    leased: Leased,
    /// The link with frames committed since the last flush.
    unflushed: u32,
    sink: Vec<u8>,
    /// Links that were lost and are not reported yet (`take_lost`).
    lost: Vec<Peer>,
    receives: u32,
    /// True while the caller sleeps or is about to sleep.
    armed: bool,
    counters: Counters,
}

impl ShmPort {
    /// Creates a port without links, named by `endpoint`.
    pub fn new(endpoint: Endpoint, limits: Limits) -> Result<ShmPort, Errno> {
        Ok(ShmPort {
            endpoint,
            limits,
            links: LinkTable::new(limits.links as usize),
            watch: Watch::new()?,
            leased: Leased::Nothing,
            unflushed: NOBODY,
            sink: vec![0; SINK],
            lost: Vec::with_capacity(limits.links as usize),
            receives: 0,
            armed: false,
            counters: Counters::default(),
        })
    }

    /// Adds a link, and returns the peer at its other end. Fails with [`SetupError::BadOffer`] if the
    /// frames of the link are too small.
    pub fn add_link(&mut self, link: Link) -> Result<Peer, SetupError> {
        if link.geometry().max_frame() < self.limits.frame {
            return Err(SetupError::BadOffer);
        }
        let index = self.links.vacant().ok_or(SetupError::TooManyLinks)?;
        if let Some(wires) = &link.wires {
            self.watch.add(index, wires)?;
        }
        // Frames may arrive before the sleeper arms the port once more.
        link.receiver.set_asleep(self.armed);
        self.links.put(index, link);
        Ok(Peer(index))
    }

    /// Sets the endpoint of the NIC at the other end of a link: frames to that endpoint use the link.
    pub fn name_peer(&mut self, peer: Peer, endpoint: Endpoint) {
        if let Some(entry) = self.links.get_mut(peer.0) {
            entry.endpoint = Some(endpoint);
        }
    }

    /// Closes the link of `peer`, if it is still open, and releases its number for the next
    /// [`ShmPort::add_link`]. The caller must not have a queue pair left that uses the peer.
    pub fn remove_link(&mut self, peer: Peer) {
        let old = self.links.replace(peer.0, State::Free);
        self.forget(peer, &old);
        self.lost.retain(|&lost| lost != peer);
    }

    /// Returns whether the process at the other end lives, as of the last check of its socket.
    pub fn is_open(&self, peer: Peer) -> bool {
        self.links.get(peer.0).is_some_and(|entry| matches!(entry.state, State::Open(_)))
    }

    /// Returns a peer that was lost and has not been reported yet. Frames to it are dropped from now on;
    /// the caller calls [`ShmPort::remove_link`] when nothing uses the peer any more.
    pub fn take_lost(&mut self) -> Option<Peer> {
        self.lost.pop()
    }

    /// Returns whether wakes are never missed on this machine. If not (no membarrier), a sleeper's timer
    /// finds what was missed.
    #[cfg(test)]
    pub(super) fn sleeps_are_safe(&self) -> bool {
        self.watch.is_fenced()
    }

    /// Returns the number of entries in the table of links that were ever used.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.links.count()
    }

    /// Returns the number of links to living processes.
    pub fn open_links(&self) -> usize {
        (0..self.count() as u32).filter(|index| self.is_open(Peer(*index))).count()
    }

    /// Returns the number of links that are polled in every receive; the others take turns.
    #[cfg(test)]
    pub(super) fn polled_each_turn(&self) -> usize {
        self.links.hot_count()
    }

    #[cfg(test)]
    pub(super) fn cool_all(&mut self) {
        self.links.cool_all();
    }

    /// Takes frames from one link.
    #[inline(always)]
    fn drain(&mut self, index: u32, quota: usize, take: &mut impl FnMut(Ingress<'_>)) -> usize {
        let Some(entry) = self.links.get_mut(index) else {
            return 0;
        };
        let State::Open(link) = &mut entry.state else {
            return self.drain_leaving(index, quota, take);
        };
        let burst = Burst::take_from(link, index, entry.streaming, quota, take);
        if burst.taken > 0 {
            entry.streaming = entry.empty == 0;
            entry.empty = 0;
            self.counters.frames_received += burst.taken as u64;
            self.counters.bytes_received += burst.bytes as u64;
        }
        match burst.end {
            BurstEnd::Quota => {}
            BurstEnd::Empty => self.links.note_empty(index),
            BurstEnd::Broken => self.broke(index),
        }
        burst.taken
    }

    /// Takes the last frames of a peer that is gone, and then closes the link.
    #[cold]
    fn drain_leaving(&mut self, index: u32, quota: usize, take: &mut impl FnMut(Ingress<'_>)) -> usize {
        let Some(State::Leaving(link, left)) = self.links.get_mut(index).map(|entry| &mut entry.state) else {
            return 0;
        };
        let burst = Burst::take_from(link, index, true, quota.min(*left as usize), take);
        *left -= burst.taken as u32;
        let over = *left == 0 || burst.end != BurstEnd::Quota;
        self.counters.frames_received += burst.taken as u64;
        self.counters.bytes_received += burst.bytes as u64;
        self.counters.malformed += u64::from(burst.end == BurstEnd::Broken);
        if over {
            self.close(index);
        }
        burst.taken
    }

    /// Polls the next few of the links that are not polled at every turn.
    #[cold]
    fn poll_cool(&mut self, budget: usize, take: &mut impl FnMut(Ingress<'_>)) -> usize {
        let mut taken = 0;
        for index in self.links.next_cool() {
            if self.links.is_hot(index) {
                continue;
            }
            let count = self.drain(index, BURST.min(budget - taken), take);
            taken += count;
            if count > 0 {
                self.links.warm(index);
            }
        }
        taken
    }

    #[cold]
    fn broke(&mut self, index: u32) {
        self.counters.malformed += 1;
        self.close(index);
    }

    /// Closes a link: its frames are dropped from now on, its memory and descriptors are released.
    fn close(&mut self, index: u32) {
        let old = self.links.replace(index, State::Lost);
        self.forget(Peer(index), &old);
        if matches!(old, State::Open(_)) {
            self.report(Peer(index));
        }
    }

    fn report(&mut self, peer: Peer) {
        self.counters.peers_lost += 1;
        self.lost.push(peer);
    }

    /// Drops what the port remembers about a link that leaves its entry.
    fn forget(&mut self, peer: Peer, old: &State) {
        if let State::Open(Link { wires: Some(wires), .. })
        | State::Leaving(Link { wires: Some(wires), .. }, _) = old
        {
            self.watch.remove(wires);
        }
        if self.unflushed == peer.0 {
            self.unflushed = NOBODY;
        }
        if self.leased == Leased::Link(peer.0) {
            self.leased = Leased::Nothing;
        }
    }

    /// Asks the OS which peers are gone, and consumes their wakes.
    #[cold]
    fn look(&mut self) {
        // Bounded, because a peer that keeps writing its eventfd would keep the epoll set busy.
        if self.links.count() == 0 {
            return;
        }
        for _ in 0..=3 * self.links.count() / BATCH {
            let links = &self.links;
            let mut gone = [NOBODY; BATCH];
            let mut count = 0;
            let looked = self.watch.look(|happened| match happened {
                LinkEvent::Woken(index) => drain_wakes(links, index),
                LinkEvent::Gone(index) => {
                    gone[count] = index;
                    count += 1;
                }
            });
            for &index in &gone[..count] {
                self.peer_gone(index);
            }
            match looked {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => {
                    self.counters.os_errors += 1;
                    return;
                }
            }
        }
    }

    /// Handles a peer that hung up: nothing more is sent to it; its published frames are still read.
    fn peer_gone(&mut self, index: u32) {
        match self.links.replace(index, State::Lost) {
            State::Open(link) => {
                // Not more frames than a ring can hold: a peer that hung up but keeps writing must not be
                // followed forever.
                let left = link.geometry().slots();
                let old = State::Leaving(link, left);
                self.forget(Peer(index), &old);
                self.links.replace(index, old);
                self.links.warm(index);
                self.report(Peer(index));
            }
            other => {
                self.links.replace(index, other);
            }
        }
    }

    /// Publishes the frames that were committed to `index`, and wakes the peer if it sleeps.
    #[inline]
    fn publish(&mut self, index: u32) {
        let Some(State::Open(link)) = self.links.get_mut(index).map(|entry| &mut entry.state) else {
            return;
        };
        link.sender.flush();
        if let Some(wires) = &link.wires
            && link.sender.must_wake()
        {
            self.counters.wakes_sent += 1;
            // Writing may fail because the eventfd is full; it is readable then as well.
            if !matches!(
                rustix::io::write(wires.wake_peer.as_fd(), &1u64.to_ne_bytes()),
                Ok(_) | Err(Errno::AGAIN)
            ) {
                self.counters.os_errors += 1;
            }
        }
    }

    /// The slow path of `lend`: the ring is full, there is no such peer, or the ring makes no sense.
    /// Returns whether the frame goes to the sink.
    #[cold]
    fn lend_refused(&mut self, peer: Peer, len: usize, broken: bool) -> bool {
        if broken {
            self.counters.malformed += 1;
            self.close(peer.0);
        } else if self.is_open(peer) {
            self.counters.no_room += 1;
            if !self.counters.no_room.is_multiple_of(LOOK_EVERY_FULL) {
                return false;
            }
            self.look();
            if self.is_open(peer) {
                return false;
            }
        }
        len <= SINK
    }

    /// Copies a frame of `len` bytes to every link that has space. On a full link the frame is lost, as on
    /// any network.
    #[cold]
    fn send_to_everyone(&mut self, len: usize) {
        self.flush();
        for index in 0..self.links.count() as u32 {
            let Some(State::Open(link)) = self.links.get_mut(index).map(|entry| &mut entry.state) else {
                continue;
            };
            if link.sender.reserve(len) != Ok(true) {
                self.counters.send_dropped += 1;
                continue;
            }
            link.sender.bytes().copy_from_slice(&self.sink[..len]);
            self.counters.frames_sent += 1;
            self.counters.bytes_sent += link.sender.commit() as u64;
            self.links.warm(index);
            self.publish(index);
        }
    }
}

/// The frames taken from a link in one turn.
struct Burst {
    taken: usize,
    bytes: usize,
    end: BurstEnd,
}

/// The reason why a burst has ended.
#[derive(Copy, Clone, PartialEq, Eq)]
enum BurstEnd {
    /// The quota of this turn is used up.
    Quota,
    /// The ring is empty.
    Empty,
    /// The next word of the ring makes no sense.
    Broken,
}

impl Burst {
    #[inline(always)]
    fn take_from(
        link: &mut Link,
        index: u32,
        streaming: bool,
        quota: usize,
        take: &mut impl FnMut(Ingress<'_>),
    ) -> Burst {
        let mut burst = Burst { taken: 0, bytes: 0, end: BurstEnd::Quota };
        let origin = Some(Origin::Link(Peer(index)));
        while burst.taken < quota {
            match link.receive(|bytes| {
                take(Ingress {
                    bytes,
                    start: Start::Ip,
                    sealed: false,
                    source: UNKNOWN,
                    destination: None,
                    origin,
                })
            }) {
                Ok(Some(len)) => burst.bytes += len,
                Ok(None) => {
                    burst.end = BurstEnd::Empty;
                    break;
                }
                Err(Broken) => {
                    burst.end = BurstEnd::Broken;
                    break;
                }
            }
            burst.taken += 1;
            // If the producer announced no further frame and there is none, checking for one costs a round
            // trip to its cache, and the answer to a single request would wait for it. So the check is made
            // only after two frames without an empty poll in between.
            if !streaming && !link.receiver.expects_more() {
                break;
            }
        }
        burst
    }
}

/// The source of frames that begin at the IP header, which contains the sender's address.
const UNKNOWN: Endpoint = Endpoint { address: Address([0; 16]), udp_port: 0 };

/// Makes the eventfd of `index` unreadable again.
fn drain_wakes(links: &LinkTable, index: u32) {
    if let Some(entry) = links.get(index)
        && let State::Open(Link { wires: Some(wires), .. }) = &entry.state
    {
        // Reading fails harmlessly if the eventfd was not written to.
        let _ = rustix::io::read(&wires.wake_self, &mut [0u8; 8]);
    }
}

impl Egress for ShmPort {
    #[inline]
    fn start(&self, _: Peer) -> Start {
        Start::Ip
    }

    #[inline]
    fn seals(&self, _: Peer) -> bool {
        false
    }

    // Always inlined: a lease returned through memory would be read in other widths than it was written in,
    // which stalls store forwarding.
    #[inline(always)]
    fn lend(&mut self, peer: Peer, _: Class, len: usize) -> Option<Lease<'_>> {
        let mut broken = false;
        if let Some(State::Open(link)) = self.links.get_mut(peer.0).map(|entry| &mut entry.state) {
            match link.sender.reserve(len) {
                Ok(true) => {
                    self.leased = Leased::Link(peer.0);
                    let bytes: *mut [u8] = link.sender.bytes();
                    // SAFETY: the slice is borrowed from `self` for as long as the lease is. The pointer is
                    // needed because the borrow checker extends that borrow over the other returns of this
                    // function.
                    return Some(Lease { bytes: unsafe { &mut *bytes }, ip_id: 0 });
                }
                Ok(false) => {}
                Err(Broken) => broken = true,
            }
        }
        self.leased = Leased::Nothing;
        if self.lend_refused(peer, len, broken) {
            self.leased = if peer == EVERYONE { Leased::Everyone(len) } else { Leased::Sink };
            return Some(Lease { bytes: &mut self.sink[..len], ip_id: 0 });
        }
        None
    }

    /// Returns the link over which a frame arrived, if the NIC at its other end has this address: a peer
    /// cannot make this port answer to another one. Without such an origin, returns the link to that
    /// endpoint.
    fn peer_of(&mut self, remote: &Endpoint, origin: Option<Origin>) -> Option<Peer> {
        if let Some(Origin::Link(peer)) = origin {
            let there = self.links.get(peer.0).and_then(|entry| entry.endpoint);
            return there.filter(|endpoint| endpoint.address == remote.address).map(|_| peer);
        }
        self.links.to(remote).map(Peer)
    }

    #[inline]
    fn has_space_per_peer(&self) -> bool {
        self.links.count() > 1
    }

    #[inline(always)]
    fn commit(&mut self) {
        match std::mem::replace(&mut self.leased, Leased::Nothing) {
            Leased::Link(index) => {
                let Some(entry) = self.links.get_mut(index) else { return };
                let State::Open(link) = &mut entry.state else { return };
                self.counters.frames_sent += 1;
                self.counters.bytes_sent += link.sender.commit() as u64;
                if !entry.hot {
                    // An answer to the frame may be expected soon.
                    self.links.warm(index);
                }
                if self.unflushed != index {
                    self.flush();
                    self.unflushed = index;
                }
            }
            Leased::Everyone(len) => self.send_to_everyone(len),
            Leased::Sink => self.counters.send_dropped += 1,
            Leased::Nothing => {}
        }
    }

    #[inline]
    fn flush(&mut self) {
        if self.unflushed != NOBODY {
            let index = std::mem::replace(&mut self.unflushed, NOBODY);
            self.publish(index);
        }
    }
}

impl Port for ShmPort {
    fn receive(&mut self, budget: usize, take: &mut impl FnMut(Ingress<'_>)) -> usize {
        let mut taken = 0;
        for step in 0..self.links.hot_count() {
            let Some(index) = self.links.nth(step) else { break };
            taken += self.drain(index, BURST.min(budget - taken), take);
            if taken >= budget {
                break;
            }
        }
        self.links.next_turn();
        if self.links.has_cool() {
            taken += self.poll_cool(budget - taken, take);
        }
        self.receives = self.receives.wrapping_add(1);
        if self.receives.is_multiple_of(LOOK_EVERY) {
            self.look();
        }
        taken
    }

    fn receives_to_silence(&self) -> u32 {
        self.links.turns()
    }

    fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    fn max_transport_bytes(&self) -> usize {
        (self.limits.frame as usize).saturating_sub(BEFORE_BTH)
    }

    fn arm(&mut self) -> bool {
        self.armed = true;
        for (_, entry) in self.links.iter_mut() {
            if let State::Open(link) = &entry.state {
                link.receiver.set_asleep(true);
            }
        }
        if self.links.count() == 0 {
            return false;
        }
        self.watch.settle();
        self.links.iter_mut().any(|(_, entry)| match &mut entry.state {
            State::Open(link) => link.receiver.is_ready(),
            // The end of the link is found by receiving.
            State::Leaving(..) => true,
            State::Free | State::Lost => false,
        })
    }

    fn disarm(&mut self) {
        self.armed = false;
        for (_, entry) in self.links.iter_mut() {
            if let State::Open(link) = &entry.state {
                link.receiver.set_asleep(false);
            }
        }
        self.look();
    }

    fn poll_fds(&self, out: &mut Vec<RawFd>) {
        out.push(self.watch.fd());
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
