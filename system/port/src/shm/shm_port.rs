//! `ShmPort`: a NIC's links as a port.

use std::os::fd::{AsFd, RawFd};

use rustix::io::Errno;

use super::link::Link;
use super::places::{Places, State};
use super::ring::Broken;
use super::setup::SetupError;
use super::watch::{BATCH, Happened, Watch};
use crate::{Address, Counters, Egress, Endpoint, Ingress, Lease, Peer, Port, Start};

/// Frames taken from one link before the next has its turn, and before what they ask for is answered. Few, so that both
/// cores work at the same time: with longer bursts each waits for the other's, and hands back a burst as long.
const BURST: usize = 16;
/// Receives between two looks at the sockets, while nobody sleeps: a look is a system call of some 200 ns. Few enough
/// that a host which polls on a slow timer, too, notices a dead peer in seconds.
const LOOK_EVERY: u32 = 1 << 12;
/// Refusals for want of room between two such looks: a dead peer's ring stays full.
const LOOK_EVERY_FULL: u64 = 1 << 6;
/// Largest frame that is accepted (and dropped) for a peer that is gone.
const SINK: usize = 1 << 16;
/// Bytes of IPv6 and UDP header, the most that stands before the BTH.
const BEFORE_BTH: usize = 48;
/// No link.
const NOBODY: u32 = u32::MAX;
/// The peer that stands for every multicast group: everybody that a port is linked with. Who wants what was sent to which
/// group is for the NICs there to say.
pub const EVERYONE: Peer = Peer(u32::MAX - 1);

/// What a port may hold.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most links, dead ones whose place was not given up included.
    pub links: u32,
    /// Largest frame that every link of this port must carry, bytes from the IP header to the ICRC.
    pub frame: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { links: 1024, frame: super::DEFAULT_GEOMETRY.max_frame() }
    }
}

/// Whose frame is being built.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Leased {
    Nothing,
    Link(u32),
    /// So many bytes, to be copied to every link.
    Everyone(usize),
    /// For a peer that is gone: goes nowhere.
    Sink,
}

/// The port of a NIC (or of one engine) whose peers are processes of this host.
#[derive(Debug)]
pub struct ShmPort {
    endpoint: Endpoint,
    limits: Limits,
    places: Places,
    watch: Watch,
    leased: Leased,
    /// The link that got frames since the last flush.
    unflushed: u32,
    sink: Vec<u8>,
    /// Links that died, for `take_lost`.
    lost: Vec<Peer>,
    receives: u32,
    counters: Counters,
}

impl ShmPort {
    /// A port called `endpoint`, without links.
    pub fn new(endpoint: Endpoint, limits: Limits) -> Result<ShmPort, Errno> {
        Ok(ShmPort {
            endpoint,
            limits,
            places: Places::new(limits.links as usize),
            watch: Watch::new()?,
            leased: Leased::Nothing,
            unflushed: NOBODY,
            sink: vec![0; SINK],
            lost: Vec::with_capacity(limits.links as usize),
            receives: 0,
            counters: Counters::default(),
        })
    }

    /// Makes the peer at the other end of `link` usable. [`SetupError::BadOffer`]: its frames would be too small.
    pub fn add_link(&mut self, link: Link) -> Result<Peer, SetupError> {
        if link.geometry().max_frame() < self.limits.frame {
            return Err(SetupError::BadOffer);
        }
        let place = self.places.vacant().ok_or(SetupError::TooManyLinks)?;
        if let Some(wires) = &link.wires {
            self.watch.add(place, wires)?;
        }
        self.places.put(place, link);
        Ok(Peer(place))
    }

    /// Closes the link of `peer`, if it is still open, and gives its number up to the next [`ShmPort::add_link`]; for
    /// when no queue pair names it any more.
    pub fn remove_link(&mut self, peer: Peer) {
        let old = self.places.replace(peer.0, State::Free);
        self.forget(peer, &old);
        self.lost.retain(|&lost| lost != peer);
    }

    /// Is there a living process at the other end, as far as is known?
    pub fn is_open(&self, peer: Peer) -> bool {
        self.places.get(peer.0).is_some_and(|place| matches!(place.state, State::Open(_)))
    }

    /// A peer that was lost and has not been reported yet. Its frames are dropped from now on; call
    /// [`ShmPort::remove_link`] when nothing names it any more.
    pub fn take_lost(&mut self) -> Option<Peer> {
        self.lost.pop()
    }

    /// Is no wake ever missed on this machine? If not (no membarrier), a sleeper's timer finds what was missed.
    pub fn sleeps_are_safe(&self) -> bool {
        self.watch.is_fenced()
    }

    /// How many links are polled in every receive; the others take turns.
    pub fn polled_each_turn(&self) -> usize {
        self.places.hot_count()
    }

    #[cfg(test)]
    pub(super) fn cool_all(&mut self) {
        self.places.cool_all();
    }

    /// Takes frames from one link.
    #[inline(always)]
    fn drain(&mut self, place: u32, quota: usize, take: &mut impl FnMut(Ingress<'_>)) -> usize {
        let Some(at) = self.places.get_mut(place) else {
            return 0;
        };
        let State::Open(link) = &mut at.state else {
            return self.drain_leaving(place, quota, take);
        };
        let burst = Burst::take_from(link, at.streaming, quota, take);
        if burst.taken > 0 {
            at.streaming = at.empty == 0;
            at.empty = 0;
            self.counters.frames_received += burst.taken as u64;
            self.counters.bytes_received += burst.bytes as u64;
        }
        match burst.end {
            End::Quota => {}
            End::Empty => self.places.note_empty(place),
            End::Broken => self.broke(place),
        }
        burst.taken
    }

    /// Takes the last frames of a peer that is gone, and closes the link after them.
    #[cold]
    fn drain_leaving(&mut self, place: u32, quota: usize, take: &mut impl FnMut(Ingress<'_>)) -> usize {
        let Some(State::Leaving(link, left)) = self.places.get_mut(place).map(|at| &mut at.state) else {
            return 0;
        };
        let burst = Burst::take_from(link, true, quota.min(*left as usize), take);
        *left -= burst.taken as u32;
        let over = *left == 0 || burst.end != End::Quota;
        self.counters.frames_received += burst.taken as u64;
        self.counters.bytes_received += burst.bytes as u64;
        self.counters.malformed += u64::from(burst.end == End::Broken);
        if over {
            self.close(place);
        }
        burst.taken
    }

    /// Looks at the next few of the links that are not polled at every turn.
    #[cold]
    fn poll_cool(&mut self, budget: usize, take: &mut impl FnMut(Ingress<'_>)) -> usize {
        let mut taken = 0;
        for place in self.places.next_cool() {
            if self.places.is_hot(place) {
                continue;
            }
            let found = self.drain(place, BURST.min(budget - taken), take);
            taken += found;
            if found > 0 {
                self.places.warm(place);
            }
        }
        taken
    }

    #[cold]
    fn broke(&mut self, place: u32) {
        self.counters.malformed += 1;
        self.close(place);
    }

    /// Cuts a link off: its frames are dropped from now on, its memory and descriptors are given back.
    fn close(&mut self, place: u32) {
        let old = self.places.replace(place, State::Lost);
        self.forget(Peer(place), &old);
        if matches!(old, State::Open(_)) {
            self.report(Peer(place));
        }
    }

    fn report(&mut self, peer: Peer) {
        self.counters.peers_lost += 1;
        self.lost.push(peer);
    }

    /// Drops what the port remembers of a link that leaves its place.
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

    /// Asks the OS which peers are gone and takes their wakes.
    #[cold]
    fn look(&mut self) {
        // Bounded, because a peer that writes its eventfd without end would keep the set busy.
        for _ in 0..=3 * self.places.count() / BATCH {
            let (places, mut gone) = (&self.places, [NOBODY; BATCH]);
            let mut count = 0;
            let looked = self.watch.look(|happened| match happened {
                Happened::Woken(place) => drain_wakes(places, place),
                Happened::Gone(place) => {
                    gone[count] = place;
                    count += 1;
                }
            });
            for &place in &gone[..count] {
                self.peer_gone(place);
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

    /// The peer hung up: nothing more is sent to it; what it published is still read.
    fn peer_gone(&mut self, place: u32) {
        match self.places.replace(place, State::Lost) {
            State::Open(link) => {
                // No more than a ring can hold: a peer that hung up but goes on writing is not followed for ever.
                let left = link.geometry().slots();
                let old = State::Leaving(link, left);
                self.forget(Peer(place), &old);
                self.places.replace(place, old);
                self.places.warm(place);
                self.report(Peer(place));
            }
            other => {
                self.places.replace(place, other);
            }
        }
    }

    /// Publishes what was committed to `place`, and wakes the peer if it sleeps.
    #[inline]
    fn publish(&mut self, place: u32) {
        let Some(State::Open(link)) = self.places.get_mut(place).map(|at| &mut at.state) else {
            return;
        };
        link.sender.flush();
        if let Some(wires) = &link.wires
            && link.sender.must_wake()
        {
            self.counters.wakes_sent += 1;
            // A full eventfd is as readable as any other.
            if !matches!(
                rustix::io::write(wires.wake_peer.as_fd(), &1u64.to_ne_bytes()),
                Ok(_) | Err(Errno::AGAIN)
            ) {
                self.counters.os_errors += 1;
            }
        }
    }

    /// The slow half of `lend`: no room, no peer, or no sense. Returns whether the frame goes to the sink.
    #[cold]
    fn lend_no_room(&mut self, peer: Peer, len: usize, broken: bool) -> bool {
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

    /// Copies a frame of so many bytes to every link that has room; where there is none it is lost, as on any network.
    #[cold]
    fn send_to_everyone(&mut self, len: usize) {
        self.flush();
        for place in 0..self.places.count() as u32 {
            let Some(State::Open(link)) = self.places.get_mut(place).map(|at| &mut at.state) else {
                continue;
            };
            if link.sender.reserve(len) != Ok(true) {
                self.counters.send_dropped += 1;
                continue;
            }
            link.sender.bytes().copy_from_slice(&self.sink[..len]);
            self.counters.frames_sent += 1;
            self.counters.bytes_sent += link.sender.commit() as u64;
            self.places.warm(place);
            self.publish(place);
        }
    }
}

/// What was taken from a link at once.
struct Burst {
    taken: usize,
    bytes: usize,
    end: End,
}

/// Why no more was taken.
#[derive(Copy, Clone, PartialEq, Eq)]
enum End {
    /// Enough for this turn.
    Quota,
    /// There was no more.
    Empty,
    /// What came next makes no sense.
    Broken,
}

impl Burst {
    #[inline(always)]
    fn take_from(
        link: &mut Link,
        streaming: bool,
        quota: usize,
        take: &mut impl FnMut(Ingress<'_>),
    ) -> Burst {
        let mut burst = Burst { taken: 0, bytes: 0, end: End::Quota };
        while burst.taken < quota {
            match link
                .receive(|bytes| take(Ingress { bytes, start: Start::Ip, source: UNKNOWN, group: None }))
            {
                Ok(Some(len)) => burst.bytes += len,
                Ok(None) => {
                    burst.end = End::Empty;
                    break;
                }
                Err(Broken) => {
                    burst.end = End::Broken;
                    break;
                }
            }
            burst.taken += 1;
            // Looking for a frame that was not announced costs a round to the producer's cache if there is none, and the
            // answer to a lone request waits for it. So only after two frames without an empty poll between them.
            if !streaming && !link.receiver.expects_more() {
                break;
            }
        }
        burst
    }
}

/// Frames that begin at the IP header say themselves who sent them.
const UNKNOWN: Endpoint = Endpoint { address: Address([0; 16]), udp_port: 0 };

/// Makes the eventfd of `place` unreadable again.
fn drain_wakes(places: &Places, place: u32) {
    if let Some(at) = places.get(place)
        && let State::Open(Link { wires: Some(wires), .. }) = &at.state
    {
        // Nothing to read is what is wanted.
        let _ = rustix::io::read(&wires.wake_self, &mut [0u8; 8]);
    }
}

impl Egress for ShmPort {
    #[inline]
    fn start(&self) -> Start {
        Start::Ip
    }

    #[inline]
    fn seals(&self) -> bool {
        false
    }

    // Always: a lease that comes back through memory is read in other widths than it was written in, which stalls.
    #[inline(always)]
    fn lend(&mut self, peer: Peer, len: usize) -> Option<Lease<'_>> {
        let mut broken = false;
        if let Some(State::Open(link)) = self.places.get_mut(peer.0).map(|at| &mut at.state) {
            match link.sender.reserve(len) {
                Ok(true) => {
                    self.leased = Leased::Link(peer.0);
                    let bytes: *mut [u8] = link.sender.bytes();
                    // SAFETY: the slice is borrowed from `self` for as long as the lease is; the detour is because the
                    // borrow checker extends that borrow over the other ways out of this function.
                    return Some(Lease { bytes: unsafe { &mut *bytes }, ip_id: 0 });
                }
                Ok(false) => {}
                Err(Broken) => broken = true,
            }
        }
        self.leased = Leased::Nothing;
        if self.lend_no_room(peer, len, broken) {
            self.leased = if peer == EVERYONE { Leased::Everyone(len) } else { Leased::Sink };
            return Some(Lease { bytes: &mut self.sink[..len], ip_id: 0 });
        }
        None
    }

    #[inline]
    fn has_rooms(&self) -> bool {
        self.places.count() > 1
    }

    #[inline(always)]
    fn commit(&mut self) {
        match std::mem::replace(&mut self.leased, Leased::Nothing) {
            Leased::Link(place) => {
                let Some(at) = self.places.get_mut(place) else { return };
                let State::Open(link) = &mut at.state else { return };
                self.counters.frames_sent += 1;
                self.counters.bytes_sent += link.sender.commit() as u64;
                if !at.hot {
                    // An answer may be expected.
                    self.places.warm(place);
                }
                if self.unflushed != place {
                    self.flush();
                    self.unflushed = place;
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
            let place = std::mem::replace(&mut self.unflushed, NOBODY);
            self.publish(place);
        }
    }
}

impl Port for ShmPort {
    fn receive(&mut self, budget: usize, take: &mut impl FnMut(Ingress<'_>)) -> usize {
        let mut taken = 0;
        for step in 0..self.places.hot_count() {
            let Some(place) = self.places.nth(step) else { break };
            taken += self.drain(place, BURST.min(budget - taken), take);
            if taken >= budget {
                break;
            }
        }
        self.places.next_turn();
        if self.places.has_cool() {
            taken += self.poll_cool(budget - taken, take);
        }
        self.receives = self.receives.wrapping_add(1);
        if self.receives.is_multiple_of(LOOK_EVERY) {
            self.look();
        }
        taken
    }

    fn receives_to_silence(&self) -> u32 {
        self.places.turns()
    }

    fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    fn max_transport_bytes(&self) -> usize {
        (self.limits.frame as usize).saturating_sub(BEFORE_BTH)
    }

    fn arm(&mut self) -> bool {
        for (_, at) in self.places.iter_mut() {
            if let State::Open(link) = &at.state {
                link.receiver.set_asleep(true);
            }
        }
        self.watch.settle();
        self.places.iter_mut().any(|(_, at)| match &mut at.state {
            State::Open(link) => link.receiver.is_ready(),
            // Its end has to be found by receiving.
            State::Leaving(..) => true,
            State::Free | State::Lost => false,
        })
    }

    fn disarm(&mut self) {
        for (_, at) in self.places.iter_mut() {
            if let State::Open(link) = &at.state {
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
