//! Ports move frames between NICs and know no RDMA.
//!
//! Every port has the same two halves. The sending half is [`remora_wire::frame::Egress`] (lend a buffer,
//! commit, flush); it is in `wire` so that `nic` can name it. The receiving half, and the sleeping, is
//! [`Port`].
//!
//! | port | for | frames begin at | seals the ICRC |
//! |---|---|---|---|
//! | [`shm`] | processes of one host | IPv4/IPv6 | no |
//! | [`udp`] | anything, unprivileged | BTH | yes |
//! | [`linked`] | anything, and neighbours on the same address | as `udp` and `shm`, by peer | likewise |
//! | [`xdp`] | an Ethernet interface, with root's rights | Ethernet | yes |
//!
//! [`fault`] and [`capture`] wrap any port.
#![allow(unsafe_code, reason = "ports map shared memory and talk to the OS; each block says why it is sound")]

pub mod address;
pub mod capture;
pub mod clock;
pub mod fault;
pub mod linked;
mod prefetch;
pub mod shm;
mod signals;
mod slots;
mod staging;
mod threads;
mod time_slice;
pub mod udp;
pub mod user;
pub mod xdp;

use std::os::fd::RawFd;

pub use remora_wire::frame::{
    Address, Class, Egress, Endpoint, Ingress, IpFields, Lease, Origin, Peer, Start,
};
pub use signals::block_signals;
pub use threads::spawn_settled;
pub use time_slice::ask_for_time_slice;

/// A port beyond sending: receiving, sleeping, and facts. It is statically dispatched; [`Egress`] is the
/// sending half.
pub trait Port: Egress {
    /// Hands up to `budget` received frames to `take`, in order for each peer; returns how many. It never
    /// blocks and never fails: faulty input is counted ([`Counters`]) and dropped.
    fn receive(&mut self, budget: usize, take: &mut impl FnMut(Ingress<'_>)) -> usize;

    /// How many consecutive empty receives prove that every frame which had arrived before them was taken.
    fn receives_to_silence(&self) -> u32 {
        1
    }

    /// The port's name for its peers: its address (the RoCE GID) and UDP port.
    fn endpoint(&self) -> Endpoint;

    /// The address and UDP port that its frames come from, which the ICRC covers: those of
    /// [`Port::endpoint`], unless another socket sends.
    fn source(&self) -> Endpoint {
        self.endpoint()
    }

    /// The same for frames to this peer: a port with several addresses sends from that by which the peer was
    /// named.
    fn source_to(&self, peer: Peer) -> Endpoint {
        let _ = peer;
        self.source()
    }

    /// Largest number of bytes from BTH to ICRC, both included, in one frame.
    fn max_transport_bytes(&self) -> usize;

    /// Announces that the caller is about to sleep on [`Port::poll_fds`]. `true`: work is already waiting, do
    /// not sleep. A sleeper must still poll on a timer, since a port may announce without a fence, so a wake
    /// can be missed. Call [`Port::disarm`] after waking, or when not sleeping after all.
    fn arm(&mut self) -> bool;

    /// Takes back [`Port::arm`]: from now on peers need not wake this port. Consumes a wake that came
    /// meanwhile.
    fn disarm(&mut self);

    /// Appends the file descriptors that become readable when there is work.
    fn poll_fds(&self, out: &mut Vec<RawFd>);

    /// From now on, says with which IP header's fields each frame came that does not contain that header
    /// ([`Origin::Ip`]), if the system knows them.
    fn show_ip_fields(&mut self) {}

    /// The counters of the port so far.
    fn counters(&self) -> Counters;

    /// The endpoint of this peer, if the peer is known and its frames do not contain it (they begin at the
    /// BTH).
    fn peer_endpoint(&self, peer: Peer) -> Option<Endpoint> {
        let _ = peer;
        None
    }

    /// The source and destination MAC addresses of frames to this peer; `None`: the port does not write them,
    /// or does not know them yet. A caller that builds frames from the Ethernet header leaves the two
    /// addresses open.
    fn ethernet_addresses(&self, peer: Peer) -> Option<([u8; 6], [u8; 6])> {
        let _ = peer;
        None
    }
}

/// Counters of a port since it was made. They only rise; a wrapper adds its own to those of the port inside.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames handed to the peer or to the OS.
    pub frames_sent: u64,
    /// Their bytes, from where this port's frames begin.
    pub bytes_sent: u64,
    /// Frames handed to `take`.
    pub frames_received: u64,
    /// Their bytes, from where this port's frames begin.
    pub bytes_received: u64,
    /// Times `lend` had no free buffer. Nothing was lost: the caller tries again.
    pub no_room: u64,
    /// Frames dropped on sending: the peer is unknown or gone, or the OS refused them.
    pub send_dropped: u64,
    /// Received frames or ring words that break the port's own rules (length, bounds, truncation), dropped.
    pub malformed: u64,
    /// Failures of the OS that are none of the above.
    pub os_errors: u64,
    /// Wakes sent to sleeping peers (system calls).
    pub wakes_sent: u64,
    /// Peers that died, left or were cut off.
    pub peers_lost: u64,
    /// Decisions about frames, both directions together, where faults are injected ([`fault`]).
    pub faults: fault::Tally,
}

impl Counters {
    /// Adds the counters of another port.
    pub fn add(&mut self, other: &Counters) {
        self.frames_sent += other.frames_sent;
        self.bytes_sent += other.bytes_sent;
        self.frames_received += other.frames_received;
        self.bytes_received += other.bytes_received;
        self.no_room += other.no_room;
        self.send_dropped += other.send_dropped;
        self.malformed += other.malformed;
        self.os_errors += other.os_errors;
        self.wakes_sent += other.wakes_sent;
        self.peers_lost += other.peers_lost;
        self.faults.sum(&other.faults);
    }
}
