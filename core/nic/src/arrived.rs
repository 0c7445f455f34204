//! A received frame without the headers before the BTH.

use remora_wire::frame::{Address, Endpoint, Ingress, IpFields, Network, Origin, Start};
use remora_wire::{WireError, ethernet, ipv4, ipv6, udp};

/// A received frame, split below the transport.
pub(crate) struct Arrived<'a> {
    /// The bytes from the BTH to the end of the ICRC.
    pub transport: &'a [u8],
    pub source: Endpoint,
    /// UDP destination port; `None` if the port does not provide UDP headers.
    pub destination_port: Option<u16>,
    /// IPv4 identification; `None` for IPv6, or if the port does not provide it.
    pub ip_id: Option<u16>,
    /// ECN field of the IP header; 0 if the port does not provide it.
    pub ecn: u8,
    frame: &'a Ingress<'a>,
}

impl<'a> Arrived<'a> {
    /// Returns the frame from the IP header on, if the port provides it.
    fn from_ip(frame: &Ingress<'a>) -> Option<&'a [u8]> {
        match frame.start {
            Start::Bth => None,
            Start::Ip => Some(frame.bytes),
            Start::Ethernet => frame.bytes.get(ethernet::LEN..),
        }
    }

    /// Returns the IP fields, if the port provides them without the header.
    pub(crate) fn ip_fields(&self) -> Option<IpFields> {
        match self.frame.origin {
            Some(Origin::Ip(fields)) => Some(fields),
            _ => None,
        }
    }

    /// Returns the QPN range of the link by which the frame arrived, on a port with links to neighbours.
    #[inline]
    pub(crate) fn neighbour(&self) -> Option<u8> {
        match self.frame.origin {
            Some(Origin::Neighbour(range)) => Some(range),
            _ => None,
        }
    }

    /// Returns true if the frame ends with an ICRC.
    #[inline]
    pub(crate) fn is_sealed(&self) -> bool {
        self.frame.sealed
    }

    /// Returns the IP header, if the port provides it.
    pub(crate) fn header(&self) -> Option<&'a [u8]> {
        let from_ip = Arrived::from_ip(self.frame)?;
        let (network, _) = Network::parse(from_ip).ok()?;
        from_ip.get(..network.header_len())
    }

    /// Returns the destination address, if the port provides it or if it is not the port's own address.
    pub(crate) fn destination(&self) -> Option<Address> {
        let Some(from_ip) = Arrived::from_ip(self.frame) else {
            return self.frame.destination.map(|destination| destination.address);
        };
        Network::parse(from_ip).ok().map(|(network, _)| network.addresses().1)
    }
}

/// Parses and removes the headers before the BTH.
#[inline]
pub(crate) fn strip<'a>(frame: &'a Ingress<'a>) -> Result<Arrived<'a>, WireError> {
    let from_ip = match frame.start {
        Start::Bth => {
            let source = frame.source;
            let ip_id = None;
            let destination_port = frame.destination.map(|endpoint| endpoint.udp_port);
            let ecn = if let Some(Origin::Ip(fields)) = frame.origin { fields.traffic_class & 3 } else { 0 };
            return Ok(Arrived { transport: frame.bytes, source, destination_port, ip_id, ecn, frame });
        }
        Start::Ip => frame.bytes,
        Start::Ethernet => {
            ethernet::View::new(frame.bytes)?;
            &frame.bytes[ethernet::LEN..]
        }
    };
    if from_ip.first().is_some_and(|byte| byte >> 4 == 6) {
        return strip_ipv6(frame, from_ip);
    }
    let header = ipv4::View::new(from_ip)?;
    if !header.checksum_ok() {
        return Err(WireError::IpChecksum);
    }
    let datagram = from_ip.get(ipv4::LEN..ipv4::LEN + usize::from(header.payload_len()));
    let address = Address::from(header.source());
    strip_udp(frame, datagram.unwrap_or_default(), address, Some(header.ident()), header.ecn())
}

/// Parses and removes an IPv6 header and the UDP header behind it.
#[inline]
fn strip_ipv6<'a>(frame: &'a Ingress<'a>, from_ip: &'a [u8]) -> Result<Arrived<'a>, WireError> {
    let header = ipv6::View::new(from_ip)?;
    let datagram = from_ip.get(ipv6::LEN..ipv6::LEN + usize::from(header.payload_len()));
    let address = Address::from(header.source());
    strip_udp(frame, datagram.unwrap_or_default(), address, None, header.traffic_class() & 3)
}

/// Parses and removes the UDP header of a datagram from `address`.
#[inline(always)]
fn strip_udp<'a>(
    frame: &'a Ingress<'a>,
    datagram: &'a [u8],
    address: Address,
    ip_id: Option<u16>,
    ecn: u8,
) -> Result<Arrived<'a>, WireError> {
    let header = udp::View::new(datagram)?;
    let len = usize::from(header.payload_len());
    let transport = datagram.get(udp::LEN..udp::LEN + len).ok_or(WireError::Truncated)?;
    let source = Endpoint { address, udp_port: header.source_port() };
    Ok(Arrived { transport, source, destination_port: Some(header.destination_port()), ip_id, ecn, frame })
}
