//! Addresses as RoCE writes them: every IP address is a GID.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IP address in the form of a RoCE GID: IPv4 is `::ffff:a.b.c.d` (IBTA volume 1, annex A17).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Address(pub [u8; 16]);

impl Address {
    /// The address as IPv4, if it is one.
    #[inline]
    pub fn as_ipv4(&self) -> Option<Ipv4Addr> {
        Ipv6Addr::from_octets(self.0).to_ipv4_mapped()
    }

    /// Is it the same? By halves, as it was written a moment ago.
    #[inline]
    pub fn is(&self, other: &Address) -> bool {
        let halves = |address: &Address| {
            let (halves, _) = address.0.as_chunks();
            [u64::from_ne_bytes(halves[0]), u64::from_ne_bytes(halves[1])]
        };
        let ([a, b], [c, d]) = (halves(self), halves(other));
        (a ^ c) | (b ^ d) == 0
    }

    /// Is it an IPv4 address?
    #[inline]
    pub fn is_ipv4(&self) -> bool {
        self.as_ipv4().is_some()
    }

    /// Is it a multicast group's?
    #[inline]
    pub fn is_multicast(&self) -> bool {
        match self.as_ipv4() {
            Some(address) => address.is_multicast(),
            None => self.as_ipv6().is_multicast(),
        }
    }

    /// Can one host have it? Nobody has the unspecified address, a multicast group's or the broadcast address
    /// of all networks.
    pub fn is_host(&self) -> bool {
        match self.as_ipv4() {
            Some(address) => !(address.is_unspecified() || address.is_multicast() || address.is_broadcast()),
            None => !(self.as_ipv6().is_unspecified() || self.as_ipv6().is_multicast()),
        }
    }

    /// The address as IPv6, IPv4 in its mapped form.
    #[inline]
    pub fn as_ipv6(&self) -> Ipv6Addr {
        Ipv6Addr::from_octets(self.0)
    }
}

impl From<Ipv4Addr> for Address {
    #[inline]
    fn from(address: Ipv4Addr) -> Address {
        // Two words: made of its parts, it could not be read whole before all of them have left the store
        // buffer.
        let mapped = 0xffff << 32 | u128::from(address.to_bits());
        Address(mapped.to_be_bytes())
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
    /// UDP port of the NIC; RoCE v2's own is 4791.
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
