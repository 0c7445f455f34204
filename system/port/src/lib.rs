//! Ports: they move frames between NICs, and know nothing about RDMA.
//!
//! Every port has the same two halves. The sending half is [`remora_wire::frame::Egress`] (lend a buffer,
//! commit, flush), which is defined in `wire` so that `nic` can name it. The receiving half, including
//! sleeping, is [`Port`].
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
mod forward;
pub mod linked;
mod prefetch;
mod remedy;
mod return_stack;
pub mod shm;
mod signals;
mod slots;
pub mod staging;
mod threads;
mod time_slice;
pub mod udp;
pub mod user;
pub mod xdp;

use std::os::fd::RawFd;

pub use remedy::remedy;
pub use remora_wire::frame::{
    Address, Class, Egress, Endpoint, Ingress, IpFields, Lease, Origin, Peer, Start,
};
pub use signals::block_signals;
pub use threads::spawn_settled;
pub use time_slice::ask_for_time_slice;

/// The receiving half of a port, with sleeping and facts about the port. Ports are statically dispatched.
/// [`Egress`] is the sending half.
pub trait Port: Egress {
    /// Passes up to `budget` received frames to `take`, in order for each peer, and returns their number.
    /// Never blocks and never fails: malformed input is counted ([`Counters`]) and dropped.
    fn receive(&mut self, budget: usize, take: &mut impl FnMut(Ingress<'_>)) -> usize;

    /// Returns the number of consecutive empty receives after which every frame that had arrived before
    /// them has been taken.
    fn receives_to_silence(&self) -> u32 {
        1
    }

    /// Returns the address (the RoCE GID) and UDP port by which peers name this port.
    fn endpoint(&self) -> Endpoint;

    /// Returns the address and UDP port that frames are sent from, which the ICRC covers. They are those of
    /// [`Port::endpoint`], unless another socket sends.
    fn source(&self) -> Endpoint {
        self.endpoint()
    }

    /// Returns the source of frames to this peer. A port with several addresses sends from the address at
    /// which the peer was created.
    fn source_to(&self, peer: Peer) -> Endpoint {
        let _ = peer;
        self.source()
    }

    /// Returns the largest size of one frame in bytes, from BTH to ICRC, both included.
    fn max_transport_bytes(&self) -> usize;

    /// Announces that the caller is about to sleep on [`Port::poll_fds`]. Returns true if work is already
    /// waiting, so that the caller must not sleep. A sleeper must also wake by a timer: a port may make the
    /// announcement without a fence, so a wake can be missed. The caller must call [`Port::disarm`] after
    /// waking, or if it does not sleep after all.
    fn arm(&mut self) -> bool;

    /// Reverts [`Port::arm`]: peers need not wake this port any more. Consumes a wake that arrived
    /// meanwhile.
    fn disarm(&mut self);

    /// Appends the file descriptors that become readable when there is work.
    fn poll_fds(&self, out: &mut Vec<RawFd>);

    /// Makes the port report the IP header's fields of each received frame that does not contain the header
    /// itself ([`Origin::Ip`]), if the system knows them.
    fn show_ip_fields(&mut self) {}

    /// Returns the counters of the port.
    fn counters(&self) -> Counters;

    /// Returns the endpoint of this peer if its frames do not contain it (they begin at the BTH); `None` if
    /// the peer is unknown or its frames contain the addresses.
    fn peer_endpoint(&self, peer: Peer) -> Option<Endpoint> {
        let _ = peer;
        None
    }

    /// Returns the source and destination MAC addresses of frames to this peer. `None` if the port does not
    /// write them, or does not know them yet. A caller that builds frames from the Ethernet header on need
    /// not fill in these two addresses.
    fn ethernet_addresses(&self, peer: Peer) -> Option<([u8; 6], [u8; 6])> {
        let _ = peer;
        None
    }
}

/// Counters of a port since it was created. They only increase. A wrapper adds its own counts to those of
/// the port that it wraps.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that were passed to the peer or to the OS.
    pub frames_sent: u64,
    /// Bytes of the sent frames, counted from where this port's frames begin.
    pub bytes_sent: u64,
    /// Frames that were passed to `take`.
    pub frames_received: u64,
    /// Bytes of the received frames, counted from where this port's frames begin.
    pub bytes_received: u64,
    /// Calls of `lend` that found no free buffer. Nothing was lost: the caller tries once more later.
    pub no_room: u64,
    /// Frames dropped on sending because the peer is unknown or gone, or the OS refused them.
    pub send_dropped: u64,
    /// Received frames or ring words that were dropped because they violate the port's rules (length,
    /// bounds, truncation).
    pub malformed: u64,
    /// Other failures of the OS.
    pub os_errors: u64,
    /// Wakes sent to sleeping peers; each is a system call.
    pub wakes_sent: u64,
    /// Peers that died, left or were cut off.
    pub peers_lost: u64,
    /// Decisions of fault injection ([`fault`]) about frames of both directions.
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
