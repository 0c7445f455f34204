//! Frames: where their bytes begin, their two endpoints, and the seam between NIC and port.
//!
//! A port moves frames and does not know what they mean; the NIC knows what they mean and not how they move.
//! This module has what both must agree on.

mod address;
mod dissect;
mod network;
mod route;

pub use address::{Address, Endpoint};
pub use dissect::{Dissected, dissect};
pub use network::Network;
pub use route::Route;

use crate::{Qpn, ethernet, ipv4, ipv6, udp};

/// Where the bytes of a frame begin on a port.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the Ethernet header: packet sockets, AF_XDP.
    Ethernet,
    /// At the IPv4 or IPv6 header: shared memory.
    Ip,
    /// At the BTH: UDP sockets, where the kernel writes the rest.
    Bth,
}

impl Start {
    /// Bytes of a frame before its BTH.
    #[inline]
    pub const fn overhead(self, is_ipv4: bool) -> usize {
        let ip = if is_ipv4 { ipv4::LEN } else { ipv6::LEN };
        match self {
            Start::Ethernet => ethernet::LEN + ip + udp::LEN,
            Start::Ip => ip + udp::LEN,
            Start::Bth => 0,
        }
    }
}

/// A peer of a port: index into the port's peer table.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peer(pub u32);

/// The traffic class of a frame, 0 to 7: the priority of IEEE 802.1Q, which priority-based flow control
/// pauses by itself. RoCE's service levels (`ibv_ah_attr.sl`) are these. Only ports with a buffer for each
/// class ask.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(u8);

impl Class {
    /// How many there are.
    pub const COUNT: usize = 8;

    /// The class of this number, of which the low three bits count: the field of 802.1Q has no more.
    #[inline]
    pub const fn new(number: u8) -> Class {
        Class(number & 7)
    }

    /// Its number.
    #[inline]
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// A buffer for one frame, lent by a port.
#[derive(Debug)]
pub struct Lease<'a> {
    /// The frame's bytes, exactly as many as were asked for; what stands in them is undefined.
    pub bytes: &'a mut [u8],
    /// The IPv4 identification that this frame will carry: k for the k-th frame of a train, else 0. The ICRC
    /// covers it.
    pub ip_id: u16,
}

/// One received frame and what the port knows of it beyond its bytes.
#[derive(Copy, Clone, Debug)]
pub struct Ingress<'a> {
    /// The frame, from `start` to the end of the ICRC.
    pub bytes: &'a [u8],
    /// Where it begins.
    pub start: Start,
    /// Does an ICRC end it? Frames that cross no wire have four zero bytes there.
    pub sealed: bool,
    /// The sender. Only meaningful when `start` is [`Start::Bth`]; otherwise the headers contain it.
    pub source: Endpoint,
    /// The address and UDP port that it was sent to, if they are not the port's own: a multicast group, or a
    /// further address of the port; likewise.
    pub destination: Option<Endpoint>,
    /// How it came, on ports that know more than its source address. An answer to a stranger goes back so.
    pub origin: Option<Origin>,
}

/// How a frame came to a port, below the addresses that its sender chose.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// By the link of this peer.
    Link(Peer),
    /// From this MAC address.
    Mac([u8; 6]),
}

/// What the NIC's egress needs of a port. Dispatch is static.
pub trait Egress {
    /// Where frames to this peer begin. It never changes while the peer has this number.
    fn start(&self, peer: Peer) -> Start;

    /// Must frames to this peer carry a sealed ICRC? If not, the four bytes are left zero.
    fn seals(&self, peer: Peer) -> bool;

    /// The peer by which a datagram to queue pair `to` leaves, whose address handle names `peer`. Programs
    /// that share an address have one name there, and a port may have a shorter way to some of them.
    #[inline]
    fn nearest(&mut self, peer: Peer, to: Qpn) -> Peer {
        let _ = to;
        peer
    }

    /// Lends a buffer for a frame of exactly `len` bytes to `peer`, counted from [`Egress::start`] to the end
    /// of the ICRC, which leaves in `class`. `None`: no buffer is free now, try after the next receive;
    /// nothing is lost.
    fn lend(&mut self, peer: Peer, class: Class, len: usize) -> Option<Lease<'_>>;

    /// The peer that stands for an endpoint, which need not be known to the control path: to be used with the
    /// next [`lend`](Egress::lend), since a port remembers only so many strangers. `origin` is how a frame of
    /// that endpoint came, if one did. `None`: the port has no way there.
    fn peer_of(&mut self, to: &Endpoint, origin: Option<Origin>) -> Option<Peer> {
        let _ = (to, origin);
        None
    }

    /// Has each peer buffers of its own, so that [`Egress::lend`] may have one for one peer while it has none
    /// for another?
    fn has_space_per_peer(&self) -> bool {
        false
    }

    /// Has it transmit queues, each with buffers of its own, so that [`Egress::lend`] may have one for frames
    /// of one queue while it has none for another? Such a port has a queue for each class and uplink.
    #[inline(always)]
    fn has_space_per_queue(&self) -> bool {
        false
    }

    /// The transmit queue, 0 to 63, by which frames of `class` leave for `peer`.
    fn queue(&self, peer: Peer, class: Class) -> u8 {
        let _ = (peer, class);
        0
    }

    /// The transmit queues that take no frame now, since they are full or paused: bit n for queue n. The NIC
    /// asks when [`Egress::lend`] has no buffer. If it is the frame's queue that is stopped, frames of other
    /// queues go on, and this one waits until the bit is clear.
    fn stopped(&self) -> u64 {
        0
    }

    /// The frame of the last lease is complete and may leave; a port may hold it for a train until
    /// [`Egress::flush`].
    fn commit(&mut self);

    /// Everything committed leaves now.
    fn flush(&mut self);
}

/// Where it is not worth a copy of the code for each port.
impl Egress for &mut dyn Egress {
    fn start(&self, peer: Peer) -> Start {
        (**self).start(peer)
    }

    fn seals(&self, peer: Peer) -> bool {
        (**self).seals(peer)
    }

    fn nearest(&mut self, peer: Peer, to: Qpn) -> Peer {
        (**self).nearest(peer, to)
    }

    fn lend(&mut self, peer: Peer, class: Class, len: usize) -> Option<Lease<'_>> {
        (**self).lend(peer, class, len)
    }

    fn peer_of(&mut self, to: &Endpoint, origin: Option<Origin>) -> Option<Peer> {
        (**self).peer_of(to, origin)
    }

    fn has_space_per_peer(&self) -> bool {
        (**self).has_space_per_peer()
    }

    fn has_space_per_queue(&self) -> bool {
        (**self).has_space_per_queue()
    }

    fn queue(&self, peer: Peer, class: Class) -> u8 {
        (**self).queue(peer, class)
    }

    fn stopped(&self) -> u64 {
        (**self).stopped()
    }

    fn commit(&mut self) {
        (**self).commit();
    }

    fn flush(&mut self) {
        (**self).flush();
    }
}

#[cfg(test)]
mod tests;
