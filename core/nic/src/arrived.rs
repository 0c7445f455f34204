//! A received frame, without what precedes the BTH.

use remora_wire::frame::{Address, Endpoint, Ingress, IpFields, Network, Origin, Start};
use remora_wire::{WireError, ethernet, udp};

/// A received frame, split below the transport.
pub(crate) struct Arrived<'a> {
    /// From the BTH to the end of the ICRC.
    pub transport: &'a [u8],
    pub source: Endpoint,
    /// The UDP port it was sent to. None: the port does not show UDP headers.
    pub destination_port: Option<u16>,
    /// The IPv4 identification. None: the port does not show it, or it is IPv6.
    pub ip_id: Option<u16>,
    /// The ECN field of the IP header; 0 where the port does not show it.
    pub ecn: u8,
    frame: &'a Ingress<'a>,
}

impl<'a> Arrived<'a> {
    /// The IP header and what follows it, if the port shows them.
    fn from_ip(frame: &Ingress<'a>) -> Option<&'a [u8]> {
        match frame.start {
            Start::Bth => None,
            Start::Ip => Some(frame.bytes),
            Start::Ethernet => frame.bytes.get(ethernet::LEN..),
        }
    }

    /// The fields of its IP header, where the port shows them without the header.
    pub fn ip_fields(&self) -> Option<IpFields> {
        match self.frame.origin {
            Some(Origin::Ip(fields)) => Some(fields),
            _ => None,
        }
    }

    /// The QPN range of the program whose link it came by, on a port that has links to neighbours.
    #[inline]
    pub fn neighbour(&self) -> Option<u8> {
        match self.frame.origin {
            Some(Origin::Neighbour(range)) => Some(range),
            _ => None,
        }
    }

    /// Does an ICRC end it?
    #[inline]
    pub fn is_sealed(&self) -> bool {
        self.frame.sealed
    }

    /// The IP header, if the port shows it.
    pub fn header(&self) -> Option<&'a [u8]> {
        let from_ip = Arrived::from_ip(self.frame)?;
        let (network, _) = Network::parse(from_ip).ok()?;
        from_ip.get(..network.header_len())
    }

    /// The address that it was sent to, if the port shows it, or if it is not the port's own.
    pub fn destination(&self) -> Option<Address> {
        let Some(from_ip) = Arrived::from_ip(self.frame) else {
            return self.frame.destination.map(|to| to.address);
        };
        Network::parse(from_ip).ok().map(|(network, _)| network.addresses().1)
    }
}

/// Parses and removes the headers before the BTH.
#[inline]
pub(crate) fn strip<'a>(frame: &'a Ingress<'a>) -> Result<Arrived<'a>, WireError> {
    let from_ip = match frame.start {
        Start::Bth => {
            let (source, ip_id) = (frame.source, None);
            let destination_port = frame.destination.map(|to| to.udp_port);
            let ecn = if let Some(Origin::Ip(fields)) = frame.origin { fields.traffic_class & 3 } else { 0 };
            return Ok(Arrived { transport: frame.bytes, source, destination_port, ip_id, ecn, frame });
        }
        Start::Ip => frame.bytes,
        Start::Ethernet => {
            ethernet::View::new(frame.bytes)?;
            &frame.bytes[ethernet::LEN..]
        }
    };
    let (network, rest) = Network::parse(from_ip)?;
    let header = udp::View::new(rest)?;
    let len = usize::from(header.payload_len());
    let transport = rest.get(udp::LEN..udp::LEN + len).ok_or(WireError::Truncated)?;
    let (address, _) = network.addresses();
    let (ip_id, ecn) = match network {
        Network::V4(header) => (Some(header.ident), header.ecn),
        Network::V6(header) => (None, header.traffic_class & 3),
    };
    let source = Endpoint { address, udp_port: header.source_port() };
    Ok(Arrived { transport, source, destination_port: Some(header.destination_port()), ip_id, ecn, frame })
}
