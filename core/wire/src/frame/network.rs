//! The network header of a frame, IPv4 or IPv6.

use super::Address;
use crate::{WireError, ethernet, ipv4, ipv6};

/// The network header of a frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// An IPv4 header.
    V4(ipv4::Repr),
    /// An IPv6 header.
    V6(ipv6::Repr),
}

impl Network {
    /// Returns the header and its payload. The first nibble selects the IP version.
    ///
    /// Fails like [`ipv4::View::new`] and [`ipv6::View::new`], and with [`WireError::IpChecksum`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Network, &[u8]), WireError> {
        let (network, start, len) = match bytes.first().map(|byte| byte >> 4) {
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
        Ok((network, &bytes[start..start + usize::from(len)]))
    }

    /// Length of the header in bytes.
    #[inline]
    pub const fn header_len(&self) -> usize {
        match self {
            Network::V4(_) => ipv4::LEN,
            Network::V6(_) => ipv6::LEN,
        }
    }

    /// Returns the EtherType of the header.
    #[inline]
    pub const fn ethertype(&self) -> u16 {
        match self {
            Network::V4(_) => ethernet::TYPE_IPV4,
            Network::V6(_) => ethernet::TYPE_IPV6,
        }
    }

    /// Protocol number of the payload.
    #[inline]
    pub const fn protocol(&self) -> u8 {
        match self {
            Network::V4(header) => header.protocol,
            Network::V6(header) => header.next_header,
        }
    }

    /// Returns the IPv4 identification, or 0 for IPv6.
    #[inline]
    pub const fn ip_id(&self) -> u16 {
        match self {
            Network::V4(header) => header.ident,
            Network::V6(_) => 0,
        }
    }

    /// Returns source and destination address.
    #[inline]
    pub fn addresses(&self) -> (Address, Address) {
        match self {
            Network::V4(header) => (header.source.into(), header.destination.into()),
            Network::V6(header) => (header.source.into(), header.destination.into()),
        }
    }

    /// Writes the header at the start of `out` and returns its length. Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        match self {
            Network::V4(header) => header.emit(out),
            Network::V6(header) => header.emit(out),
        }
        self.header_len()
    }
}
