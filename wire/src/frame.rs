//! Frames: where their bytes begin, whom they are between, and the seam between NIC and port.
//!
//! A port moves frames and does not know what they mean; the NIC knows what they mean and not how they move. What
//! both must agree on is here.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{Packet, WireError, ethernet, icrc, ipv4, ipv6, udp};

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

/// An IP address in the form of a RoCE GID: IPv4 is `::ffff:a.b.c.d` (IBTA volume 1, annex A17).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Address(pub [u8; 16]);

impl Address {
    /// The address as IPv4, if it is one.
    #[inline]
    pub fn as_ipv4(&self) -> Option<Ipv4Addr> {
        Ipv6Addr::from_octets(self.0).to_ipv4_mapped()
    }

    /// Is it an IPv4 address?
    #[inline]
    pub fn is_ipv4(&self) -> bool {
        self.as_ipv4().is_some()
    }

    /// The address as IPv6, IPv4 in its mapped form.
    #[inline]
    pub fn as_ipv6(&self) -> Ipv6Addr {
        Ipv6Addr::from_octets(self.0)
    }
}

impl From<Ipv4Addr> for Address {
    fn from(address: Ipv4Addr) -> Address {
        Address(address.to_ipv6_mapped().octets())
    }
}

impl From<Ipv6Addr> for Address {
    fn from(address: Ipv6Addr) -> Address {
        Address(address.octets())
    }
}

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Address {
        match address {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => address.into(),
        }
    }
}

impl From<Address> for IpAddr {
    fn from(address: Address) -> IpAddr {
        address.as_ipv4().map_or(IpAddr::V6(address.as_ipv6()), IpAddr::V4)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        IpAddr::from(*self).fmt(f)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

/// One end of a flow: an address and a UDP port.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Endpoint {
    /// IP address, also the GID.
    pub address: Address,
    /// UDP port.
    pub udp_port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address.as_ipv4() {
            Some(address) => write!(f, "{address}:{}", self.udp_port),
            None => write!(f, "[{}]:{}", self.address, self.udp_port),
        }
    }
}

/// A peer of a port: index into the port's peer table.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peer(pub u32);

/// Room for one frame, lent by a port.
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
    /// The frame.
    pub bytes: &'a [u8],
    /// Where it begins.
    pub start: Start,
    /// Who sent it; only meaningful when `start` is [`Start::Bth`], otherwise the headers say it.
    pub source: Endpoint,
}

/// What the NIC's egress needs of a port. Dispatch is static.
pub trait Egress {
    /// Where this port's frames begin.
    fn start(&self) -> Start;

    /// Must frames carry a sealed ICRC? If not, the four bytes are left zero.
    fn seals(&self) -> bool;

    /// Lends room for a frame of exactly `len` bytes to `peer`, counted from [`Egress::start`] to the end of the
    /// ICRC. `None`: no room now, try after the next receive; nothing is lost.
    fn lend(&mut self, peer: Peer, len: usize) -> Option<Lease<'_>>;

    /// The frame of the last lease is complete and may leave; a port may hold it for a train until
    /// [`Egress::flush`].
    fn commit(&mut self);

    /// Everything committed leaves now.
    fn flush(&mut self);
}

/// The headers below the transport for one direction between two endpoints: what the NIC writes before the BTH on
/// ports whose frames do not begin there.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The sender.
    pub source: Endpoint,
    /// The receiver.
    pub destination: Endpoint,
    /// The sender's MAC address.
    pub source_mac: [u8; 6],
    /// The next hop's MAC address.
    pub destination_mac: [u8; 6],
    /// TOS byte of IPv4, traffic class of IPv6: DSCP and ECN.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
}

impl Route {
    /// A route with zero MAC addresses, best effort, 64 hops.
    #[inline]
    pub const fn new(source: Endpoint, destination: Endpoint) -> Route {
        Route {
            source,
            destination,
            source_mac: [0; 6],
            destination_mac: [0; 6],
            traffic_class: 0,
            hop_limit: 64,
        }
    }

    /// The headers of a frame with `transport_len` bytes from BTH to the end of the ICRC. IPv4 if both addresses
    /// are; don't-fragment is set.
    #[inline]
    pub fn headers(&self, ip_id: u16, transport_len: u16) -> (ethernet::Repr, Network, udp::Repr) {
        let udp = udp::Repr {
            source_port: self.source.udp_port,
            destination_port: self.destination.udp_port,
            payload_len: transport_len,
            checksum: 0,
        };
        let payload_len = transport_len + udp::LEN as u16;
        let addresses = self.source.address.as_ipv4().zip(self.destination.address.as_ipv4());
        let network = match addresses {
            Some((source, destination)) => Network::V4(ipv4::Repr {
                dscp: self.traffic_class >> 2,
                ecn: self.traffic_class & 3,
                payload_len,
                ident: ip_id,
                dont_fragment: true,
                ttl: self.hop_limit,
                protocol: ipv4::PROTOCOL_UDP,
                source,
                destination,
            }),
            None => Network::V6(ipv6::Repr {
                traffic_class: self.traffic_class,
                flow_label: 0,
                payload_len,
                next_header: ipv4::PROTOCOL_UDP,
                hop_limit: self.hop_limit,
                source: self.source.address.as_ipv6(),
                destination: self.destination.address.as_ipv6(),
            }),
        };
        let ethernet = ethernet::Repr {
            destination: self.destination_mac,
            source: self.source_mac,
            ethertype: network.ethertype(),
        };
        (ethernet, network, udp)
    }

    /// Writes what precedes the BTH in a frame that begins at `start` and returns its bytes, the BTH's offset
    /// ([`Start::overhead`]). Panics if there is no room.
    #[inline]
    pub fn emit(&self, start: Start, ip_id: u16, transport_len: u16, out: &mut [u8]) -> usize {
        if start == Start::Bth {
            return 0;
        }
        let (ethernet, network, udp) = self.headers(ip_id, transport_len);
        let mut at = 0;
        if start == Start::Ethernet {
            ethernet.emit(out);
            at = ethernet::LEN;
        }
        at += network.emit(&mut out[at..]);
        udp.emit(&mut out[at..]);
        at + udp::LEN
    }
}

/// The network header of a frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// IPv4.
    V4(ipv4::Repr),
    /// IPv6.
    V6(ipv6::Repr),
}

impl Network {
    /// The header and the bytes of its payload. Which version is told by the first nibble.
    ///
    /// Errors: those of [`ipv4::View::new`] and [`ipv6::View::new`], [`WireError::IpChecksum`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Network, &[u8]), WireError> {
        let (network, at, len) = match bytes.first().map(|byte| byte >> 4) {
            None => return Err(WireError::Truncated),
            Some(6) => {
                let header = ipv6::Repr::parse(&ipv6::View::new(bytes)?);
                (Network::V6(header), ipv6::LEN, header.payload_len)
            }
            Some(_) => {
                let view = ipv4::View::new(bytes)?;
                if !view.checksum_ok() {
                    return Err(WireError::IpChecksum);
                }
                let header = ipv4::Repr::parse(&view);
                (Network::V4(header), ipv4::LEN, header.payload_len)
            }
        };
        Ok((network, &bytes[at..at + usize::from(len)]))
    }

    /// Bytes of the header.
    #[inline]
    pub const fn header_len(&self) -> usize {
        match self {
            Network::V4(_) => ipv4::LEN,
            Network::V6(_) => ipv6::LEN,
        }
    }

    /// The EtherType that announces it.
    #[inline]
    pub const fn ethertype(&self) -> u16 {
        match self {
            Network::V4(_) => ethernet::TYPE_IPV4,
            Network::V6(_) => ethernet::TYPE_IPV6,
        }
    }

    /// Protocol of the payload.
    #[inline]
    pub const fn protocol(&self) -> u8 {
        match self {
            Network::V4(header) => header.protocol,
            Network::V6(header) => header.next_header,
        }
    }

    /// The IPv4 identification; 0 for IPv6, which has none.
    #[inline]
    pub const fn ip_id(&self) -> u16 {
        match self {
            Network::V4(header) => header.ident,
            Network::V6(_) => 0,
        }
    }

    /// Sender and receiver.
    #[inline]
    pub fn addresses(&self) -> (Address, Address) {
        match self {
            Network::V4(header) => (header.source.into(), header.destination.into()),
            Network::V6(header) => (header.source.into(), header.destination.into()),
        }
    }

    /// Writes the header at the start of `out` and returns its bytes; panics if there is no room.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        match self {
            Network::V4(header) => header.emit(out),
            Network::V6(header) => header.emit(out),
        }
        self.header_len()
    }
}

/// A whole frame as values; only the payload is borrowed. Its `emit` gives back the bytes it was dissected from.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Dissected<'a> {
    /// Ethernet header, of frames that begin there.
    pub ethernet: Option<ethernet::Repr>,
    /// IP and UDP header, of frames that do not begin at the BTH.
    pub network: Option<(Network, udp::Repr)>,
    /// BTH to payload.
    pub packet: Packet<'a>,
    /// The ICRC as it stands in the frame; whether it is right is not checked here.
    pub icrc: u32,
}

/// Takes a frame apart. What follows the IP packet in an Ethernet frame (its padding) is dropped. UDP ports are
/// not looked at.
///
/// Errors: any [`WireError`].
pub fn dissect(start: Start, bytes: &[u8]) -> Result<Dissected<'_>, WireError> {
    let mut rest = bytes;
    let mut found = None;
    if start == Start::Ethernet {
        let header = ethernet::Repr::parse(&ethernet::View::new(rest)?);
        rest = &rest[ethernet::LEN..];
        found = Some(header);
    }
    let mut below = None;
    if start != Start::Bth {
        if found.is_some_and(|header| {
            header.ethertype != ethernet::TYPE_IPV4 && header.ethertype != ethernet::TYPE_IPV6
        }) {
            return Err(WireError::NotIp);
        }
        let (network, payload) = Network::parse(rest)?;
        if found.is_some_and(|header| header.ethertype != network.ethertype()) {
            return Err(WireError::NotIp);
        }
        if network.protocol() != ipv4::PROTOCOL_UDP {
            return Err(WireError::NotUdp);
        }
        let udp = udp::Repr::parse(&udp::View::new(payload)?);
        if usize::from(udp.payload_len) + udp::LEN != payload.len() {
            return Err(WireError::Length);
        }
        rest = &payload[udp::LEN..];
        below = Some((network, udp));
    }
    let packet = Packet::parse(rest)?;
    let icrc = icrc::read(rest).ok_or(WireError::Truncated)?;
    Ok(Dissected { ethernet: found, network: below, packet, icrc })
}

impl Dissected<'_> {
    /// Bytes of the frame.
    pub fn buffer_len(&self) -> usize {
        let below = self.network.map_or(0, |(network, _)| network.header_len() + udp::LEN);
        self.ethernet.map_or(0, |_| ethernet::LEN) + below + self.packet.buffer_len()
    }

    /// Writes the frame at the start of `out` and returns its bytes; panics if there is no room.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let mut at = 0;
        if let Some(ethernet) = &self.ethernet {
            ethernet.emit(out);
            at += ethernet::LEN;
        }
        if let Some((network, udp)) = &self.network {
            at += network.emit(&mut out[at..]);
            udp.emit(&mut out[at..]);
            at += udp::LEN;
        }
        at += self.packet.emit(&mut out[at..]);
        out[at..at + icrc::LEN].copy_from_slice(&self.icrc.to_le_bytes());
        at + icrc::LEN
    }
}

#[cfg(test)]
mod tests;
