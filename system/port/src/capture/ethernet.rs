//! The parts of an Ethernet frame that a port's frame lacks: headers and ICRC.

use crate::staging::has_icrc;
use remora_wire::frame::{Address, Endpoint, IpFields, Network, Route, Start};
use remora_wire::icrc::{self, Flow, IdSpans};
use remora_wire::{ethernet, udp};

/// Hop limit of a datagram to a multicast group: the kernel's default, which the port does not change.
const MULTICAST_HOPS: u8 = 1;

/// Length in bytes of the longest headers that may have to be added: Ethernet, IPv6, UDP.
pub(super) const MAX_HEADERS: usize = ethernet::LEN + 40 + udp::LEN;

/// Derives a locally administered MAC address from an IP address: 02:00, then the last four bytes of the IP
/// address.
fn mac(address: Address) -> [u8; 6] {
    let [.., a, b, c, d] = address.0;
    [2, 0, a, b, c, d]
}

/// The headers before the BTH, for a frame that begins at the BTH.
#[derive(Copy, Clone, Debug)]
pub(super) struct Below {
    pub source: Endpoint,
    pub destination: Endpoint,
    pub fields: IpFields,
    pub ip_id: u16,
    /// True to write the UDP checksum, as the kernel does for sent frames. A received frame may have had
    /// none, so it is left out there.
    pub checksum: bool,
}

impl Below {
    /// Writes the headers of a frame and returns their length in bytes.
    pub(super) fn emit(&self, transport: &[u8], out: &mut [u8]) -> usize {
        let Below { source, destination, fields, ip_id, checksum } = *self;
        // The kernel uses its own hop limit for multicast groups.
        let hop_limit = if destination.address.is_multicast() { MULTICAST_HOPS } else { fields.hop_limit };
        let route = Route {
            source_mac: mac(source.address),
            destination_mac: mac(destination.address),
            traffic_class: fields.traffic_class,
            hop_limit,
            ..Route::new(source, destination)
        };
        let len = route.emit(Start::Ethernet, ip_id, transport.len() as u16, out);
        if checksum {
            let sum = udp_checksum(source, destination, transport);
            out[len - 2..len].copy_from_slice(&sum.to_be_bytes());
        }
        len
    }
}

/// Computes the checksum of a UDP datagram (RFC 768, RFC 8200 §8.1).
fn udp_checksum(source: Endpoint, destination: Endpoint, payload: &[u8]) -> u16 {
    const UDP: u64 = 17;
    let address = |address: &Address| {
        let start = if address.is_ipv4() { 12 } else { 0 };
        words(&address.0[start..])
    };
    let len = (udp::LEN + payload.len()) as u64;
    // The length is part of both the pseudo-header and the header.
    let ports = u64::from(source.udp_port) + u64::from(destination.udp_port);
    let mut sum =
        address(&source.address) + address(&destination.address) + UDP + 2 * len + ports + words(payload);
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // Zero would mean that there is no checksum.
    match !(sum as u16) {
        0 => 0xffff,
        sum => sum,
    }
}

/// Returns the sum of the 16-bit words of `bytes`. An odd last byte is padded with a zero byte.
fn words(bytes: &[u8]) -> u64 {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let sum: u64 = pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair))).sum();
    sum + rest.first().map_or(0, |last| u64::from(*last) << 8)
}

/// Returns the IPv4 identification that a received frame (BTH to ICRC) was sealed with, recovered from its
/// ICRC. Returns 0 if none fits or if the frame has no ICRC.
pub(super) fn sealed_id(source: Endpoint, destination: Endpoint, bytes: &[u8], spans: &mut IdSpans) -> u16 {
    if !has_icrc(bytes) {
        return 0;
    }
    let covered = bytes.len().saturating_sub(icrc::LEN);
    let Some(received) = icrc::read(bytes) else { return 0 };
    Flow::new(source, destination).accepts_unknown_id(spans, &bytes[..covered], received).unwrap_or(0)
}

/// Completes a frame that begins at its IP header: writes its Ethernet header to `out` and returns its
/// ICRC. `None` if the frame is not a UDP packet over IP, or is a message without an ICRC.
pub(super) fn complete(packet: &[u8], out: &mut [u8]) -> Option<u32> {
    let (network, payload) = Network::parse(packet).ok()?;
    let below = udp::Repr::parse(&udp::View::new(payload).ok()?);
    let (source, destination) = network.addresses();
    let header =
        ethernet::Repr { destination: mac(destination), source: mac(source), ethertype: network.ethertype() };
    header.emit(out);
    let transport = payload.get(udp::LEN..)?;
    if !has_icrc(transport) {
        return None;
    }
    let covered = transport.get(..transport.len().checked_sub(icrc::LEN)?)?;
    Some(Flow::of(&network, &below).seal(network.ip_id(), covered))
}
