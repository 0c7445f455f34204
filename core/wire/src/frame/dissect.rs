//! Parsed frames.

use super::{Network, Start};
use crate::{Packet, WireError, ethernet, icrc, ipv4, udp};

/// A parsed frame; only the payload is borrowed. `emit` reproduces the bytes of the original frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Dissected<'a> {
    /// Ethernet header; `None` if the frame starts at a later header.
    pub ethernet: Option<ethernet::Repr>,
    /// IP and UDP header; `None` if the frame starts at the BTH.
    pub network: Option<(Network, udp::Repr)>,
    /// Transport headers and payload.
    pub packet: Packet<'a>,
    /// ICRC of the frame, not validated.
    pub icrc: u32,
}

/// Parses a frame. Ethernet padding after the IP packet is dropped. UDP ports are not checked.
///
/// Fails with any [`WireError`] if the frame is invalid.
pub fn dissect(start: Start, bytes: &[u8]) -> Result<Dissected<'_>, WireError> {
    let mut rest = bytes;
    let mut ethernet_header = None;
    if start == Start::Ethernet {
        let header = ethernet::Repr::parse(&ethernet::View::new(rest)?);
        rest = &rest[ethernet::LEN..];
        ethernet_header = Some(header);
    }
    let mut below = None;
    if start != Start::Bth {
        if ethernet_header.is_some_and(|header| {
            header.ethertype != ethernet::TYPE_IPV4 && header.ethertype != ethernet::TYPE_IPV6
        }) {
            return Err(WireError::NotIp);
        }
        let (network, payload) = Network::parse(rest)?;
        if ethernet_header.is_some_and(|header| header.ethertype != network.ethertype()) {
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
    Ok(Dissected { ethernet: ethernet_header, network: below, packet, icrc })
}

impl Dissected<'_> {
    /// Returns the length of the frame in bytes.
    pub fn buffer_len(&self) -> usize {
        let below = self.network.map_or(0, |(network, _)| network.header_len() + udp::LEN);
        self.ethernet.map_or(0, |_| ethernet::LEN) + below + self.packet.buffer_len()
    }

    /// Writes the frame at the start of `out` and returns its length. Panics if `out` is shorter.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let mut offset = 0;
        if let Some(ethernet) = &self.ethernet {
            ethernet.emit(out);
            offset += ethernet::LEN;
        }
        if let Some((network, udp)) = &self.network {
            offset += network.emit(&mut out[offset..]);
            udp.emit(&mut out[offset..]);
            offset += udp::LEN;
        }
        offset += self.packet.emit(&mut out[offset..]);
        out[offset..offset + icrc::LEN].copy_from_slice(&self.icrc.to_le_bytes());
        offset + icrc::LEN
    }
}
