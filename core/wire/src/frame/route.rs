//! The headers below the transport: Ethernet, IP and UDP.

use super::IpFields;
use super::{Endpoint, Network, Start};
use crate::{ethernet, ipv4, ipv6, udp};
use serde::{Deserialize, Serialize};

/// The headers below the transport for one direction between two endpoints. The NIC writes them on ports
/// whose frames do not start at the BTH.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Source address and UDP port.
    pub source: Endpoint,
    /// Destination address and UDP port.
    pub destination: Endpoint,
    /// Source MAC address.
    pub source_mac: [u8; 6],
    /// MAC address of the next hop.
    pub destination_mac: [u8; 6],
    /// IPv4 TOS or IPv6 traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub hop_limit: u8,
}

impl Route {
    /// Returns a route with zero MAC addresses, traffic class 0 and 64 hops.
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

    /// Returns the fields of the IP header for a port whose frames do not contain that header.
    #[inline]
    pub const fn ip_fields(&self) -> IpFields {
        IpFields { traffic_class: self.traffic_class, hop_limit: self.hop_limit }
    }

    /// Returns the headers of a frame with `transport_len` bytes from BTH to the end of the ICRC. The
    /// network header is IPv4 if both addresses are. The don't-fragment flag is set.
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

    /// Writes the headers before the BTH of a frame that starts at `start`. Returns their length, which is
    /// the offset of the BTH ([`Start::overhead`]). Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, start: Start, ip_id: u16, transport_len: u16, out: &mut [u8]) -> usize {
        if start == Start::Bth {
            return 0;
        }
        let (ethernet, network, udp) = self.headers(ip_id, transport_len);
        let mut offset = 0;
        if start == Start::Ethernet {
            ethernet.emit(out);
            offset = ethernet::LEN;
        }
        offset += network.emit(&mut out[offset..]);
        udp.emit(&mut out[offset..]);
        offset + udp::LEN
    }
}
