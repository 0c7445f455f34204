//! Frames, and the interface between NIC and port.
//!
//! A port transfers frames without interpreting them, and the NIC interprets frames without knowing how they
//! are transferred. This module contains the types that both share.

mod address;
mod dissect;
mod network;
mod route;

pub use address::{Address, Endpoint};
pub use dissect::{Dissected, dissect};
pub use network::Network;
pub use route::Route;

use crate::{Qpn, ethernet, ipv4, ipv6, udp};
use serde::{Deserialize, Serialize};

/// The header with which the frames of a port start.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Start {
    /// The Ethernet header (packet sockets, AF_XDP).
    Ethernet,
    /// The IPv4 or IPv6 header (shared memory).
    Ip,
    /// The BTH (UDP sockets, for which the kernel writes the headers below).
    Bth,
}

impl Start {
    /// Returns the number of bytes before the BTH.
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

/// A peer of a port, as an index into the port's peer table.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Peer(pub u32);

/// Traffic class of a frame, 0 to 7: the priority of IEEE 802.1Q, which priority flow control pauses
/// separately, and RoCE's service level (`ibv_ah_attr.sl`). Only ports with a buffer per class use it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "u8", into = "u8")]
pub struct Class(u8);

impl From<u8> for Class {
    fn from(number: u8) -> Class {
        Class::new(number)
    }
}

impl From<Class> for u8 {
    fn from(class: Class) -> u8 {
        class.number()
    }
}

impl Class {
    /// Number of traffic classes.
    pub const COUNT: usize = 8;

    /// Returns the class with this number. Only the low three bits count, as in the 802.1Q field.
    #[inline]
    pub const fn new(number: u8) -> Class {
        Class(number & 7)
    }

    /// Returns the number of the class.
    #[inline]
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// A buffer for one frame, lent by a port.
#[derive(Debug)]
pub struct Lease<'a> {
    /// The bytes of the frame, exactly as many as requested. Their initial content is undefined.
    pub bytes: &'a mut [u8],
    /// IPv4 identification of the frame, which the ICRC covers: k for the k-th frame of a train, otherwise
    /// 0.
    pub ip_id: u16,
}

/// A received frame with the port's information about it.
#[derive(Copy, Clone, Debug)]
pub struct Ingress<'a> {
    /// Bytes of the frame, from `start` to the end of the ICRC.
    pub bytes: &'a [u8],
    /// First header of the frame.
    pub start: Start,
    /// True if the frame ends with an ICRC. Frames that cross no wire end with four zero bytes instead.
    pub sealed: bool,
    /// Source endpoint. Valid only if `start` is [`Start::Bth`]; otherwise the headers contain it.
    pub source: Endpoint,
    /// Destination endpoint if it is not the port's own, for example a multicast group or an additional
    /// address. Valid only if `start` is [`Start::Bth`].
    pub destination: Option<Endpoint>,
    /// Link or MAC address from which the frame arrived, if the port knows it. Replies to unknown peers use
    /// it.
    pub origin: Option<Origin>,
}

/// Fields of a frame's IP header that its sender chooses for each frame. The ICRC covers none of them.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpFields {
    /// TOS byte of IPv4, traffic class of IPv6: DSCP and ECN.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
}

impl Default for IpFields {
    /// Best effort, 64 hops.
    fn default() -> IpFields {
        IpFields { traffic_class: 0, hop_limit: 64 }
    }
}

/// The path on which a frame arrived, independent of the addresses in its headers.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// The link of this peer.
    Link(Peer),
    /// The link of the program that has this QPN range of the port's shared address.
    Neighbour(u8),
    /// This source MAC address.
    Mac([u8; 6]),
    /// The network, with these fields of an IP header that the frame does not contain.
    Ip(IpFields),
}

/// The part of a port that the NIC uses to send frames. Dispatch is static.
pub trait Egress {
    /// Returns the first header of frames to this peer. Constant as long as the peer keeps its number.
    fn start(&self, peer: Peer) -> Start;

    /// Returns true if frames to this peer must carry an ICRC. Otherwise its four bytes are zero.
    fn seals(&self, peer: Peer) -> bool;

    /// Returns the peer through which to send a datagram for queue pair `qp` whose address handle names
    /// `peer`. Programs on one address share a peer, and a port may have a shorter path to some of them.
    #[inline]
    fn nearest(&mut self, peer: Peer, qp: Qpn) -> Peer {
        let _ = qp;
        peer
    }

    /// Sets the IP header fields of all frames that are lent from now on, for a port whose frames do not
    /// contain that header.
    #[inline(always)]
    fn mark(&mut self, fields: IpFields) {
        let _ = fields;
    }

    /// Lends a buffer for a frame of exactly `len` bytes to `peer` in `class`, counted from
    /// [`Egress::start`] to the end of the ICRC. Returns `None` if no buffer is free; the caller should
    /// retry after the next receive.
    fn lend(&mut self, peer: Peer, class: Class, len: usize) -> Option<Lease<'_>>;

    /// Returns the peer for an endpoint, which may be unknown to the control path. Use the result for the
    /// next [`lend`](Egress::lend) only, because a port remembers a bounded number of unknown peers.
    /// `origin` is the path on which a frame of that endpoint arrived. Returns `None` if the port has no
    /// route to the endpoint.
    fn peer_of(&mut self, endpoint: &Endpoint, origin: Option<Origin>) -> Option<Peer> {
        let _ = (endpoint, origin);
        None
    }

    /// Returns true if each peer has its own buffers, so that [`Egress::lend`] may succeed for one peer and
    /// fail for another.
    fn has_space_per_peer(&self) -> bool {
        false
    }

    /// Returns true if each transmit queue has its own buffers, so that [`Egress::lend`] may succeed for one
    /// queue and fail for another. Such a port has a queue per class and uplink.
    #[inline(always)]
    fn has_space_per_queue(&self) -> bool {
        false
    }

    /// Returns the transmit queue, 0 to 63, for frames of `class` to `peer`.
    fn queue(&self, peer: Peer, class: Class) -> u8 {
        let _ = (peer, class);
        0
    }

    /// Returns the transmit queues that are full or paused, bit n for queue n. The NIC calls this when
    /// [`Egress::lend`] has no buffer. If the frame's queue is stopped, frames of other queues are sent, and
    /// this one waits until the bit is clear.
    fn stopped(&self) -> u64 {
        0
    }

    /// Commits the frame of the last lease for transmission. A port may hold it until [`Egress::flush`] to
    /// build a train.
    fn commit(&mut self);

    /// Sends all committed frames now.
    fn flush(&mut self);
}

/// Dynamic dispatch, for code that is not worth a copy per port.
impl Egress for &mut dyn Egress {
    fn start(&self, peer: Peer) -> Start {
        (**self).start(peer)
    }

    fn seals(&self, peer: Peer) -> bool {
        (**self).seals(peer)
    }

    fn nearest(&mut self, peer: Peer, qp: Qpn) -> Peer {
        (**self).nearest(peer, qp)
    }

    fn mark(&mut self, fields: IpFields) {
        (**self).mark(fields);
    }

    fn lend(&mut self, peer: Peer, class: Class, len: usize) -> Option<Lease<'_>> {
        (**self).lend(peer, class, len)
    }

    fn peer_of(&mut self, endpoint: &Endpoint, origin: Option<Origin>) -> Option<Peer> {
        (**self).peer_of(endpoint, origin)
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
