//! Frames: where their bytes begin, and the seam between a NIC and a port.

/// Where the bytes of a frame begin on a port.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the Ethernet header (AF_XDP, the simulated fabric).
    Ethernet,
    /// At the IPv4 or IPv6 header (shared memory).
    Ip,
    /// At the BTH (UDP sockets: the OS writes and strips what is before).
    Bth,
}

/// A peer of a port: index into the port's peer table.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peer(pub u32);

/// An end of a RoCE v2 flow.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The address in network order; IPv4 is `::ffff:a.b.c.d`. It is also the RoCE GID.
    pub address: [u8; 16],
    /// The UDP port.
    pub udp_port: u16,
}

/// Room for one frame, lent by a port.
#[derive(Debug)]
pub struct Lease<'a> {
    /// Exactly the bytes asked for; their content is unspecified until written.
    pub bytes: &'a mut [u8],
    /// The IPv4 identification that this frame will carry (k in the k-th frame of a GSO train, else 0).
    pub ip_id: u16,
}

/// One received frame and what the port knows of it beyond its bytes.
#[derive(Copy, Clone, Debug)]
pub struct Ingress<'a> {
    /// The frame, from `start` to the end of the ICRC.
    pub bytes: &'a [u8],
    /// Where `bytes` begins.
    pub start: Start,
    /// Who sent it; only meaningful when `start` is [`Start::Bth`] (else the headers say it).
    pub source: Endpoint,
}

/// What the NIC's egress needs of a port (statically dispatched).
pub trait Egress {
    /// Where this port's frames begin.
    fn start(&self) -> Start;

    /// Must frames carry a sealed ICRC? If not, its four bytes are left zero.
    fn seals(&self) -> bool;

    /// Lends room for a frame of exactly `len` bytes to `peer`. `None`: no room now; try after the next receive
    /// (nothing is lost).
    fn lend(&mut self, peer: Peer, len: usize) -> Option<Lease<'_>>;

    /// The frame of the last lease is complete and may leave (a port may hold it for a train until [`Egress::flush`]).
    fn commit(&mut self);

    /// Everything committed leaves now.
    fn flush(&mut self);
}
