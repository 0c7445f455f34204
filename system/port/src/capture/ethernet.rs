//! The parts of an Ethernet frame that a port's frame lacks: headers and ICRC.

use crate::staging::has_icrc;
use remora_wire::frame::{Address, Endpoint, Network, Route, Start};
use remora_wire::icrc::{self, Flow, IdSpans};
use remora_wire::{ethernet, udp};

/// Longest of the headers that may have to be made up: Ethernet, IPv6, UDP.
pub(super) const MAX_HEADERS: usize = ethernet::LEN + 40 + udp::LEN;

/// A locally administered MAC address made from the IP address: 02:00 and the last four bytes of the IP
/// address.
fn mac(address: Address) -> [u8; 6] {
    let [.., a, b, c, d] = address.0;
    [2, 0, a, b, c, d]
}

/// Writes the headers of a frame that begins at the BTH; returns their bytes. The UDP checksum is left out.
pub(super) fn headers(from: Endpoint, to: Endpoint, ip_id: u16, len: usize, out: &mut [u8]) -> usize {
    let route =
        Route { source_mac: mac(from.address), destination_mac: mac(to.address), ..Route::new(from, to) };
    route.emit(Start::Ethernet, ip_id, len as u16, out)
}

/// The IPv4 identification that a received frame (BTH to ICRC) was sealed with, found from its ICRC; 0 if
/// none fits, or if it has no ICRC.
pub(super) fn sealed_id(from: Endpoint, to: Endpoint, bytes: &[u8], spans: &mut IdSpans) -> u16 {
    if !has_icrc(bytes) {
        return 0;
    }
    let covered = bytes.len().saturating_sub(icrc::LEN);
    let Some(received) = icrc::read(bytes) else { return 0 };
    Flow::new(from, to).accepts_unknown_id(spans, &bytes[..covered], received).unwrap_or(0)
}

/// For a frame that begins at its IP header: writes its Ethernet header to `out` and returns its sealed ICRC.
/// `None`: the frame is no UDP packet over IP, or a message that has no ICRC.
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
