//! IP addresses as RoCE GIDs.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use serde::{Deserialize, Serialize};

/// An IP address as a RoCE GID; an IPv4 address has the form `::ffff:a.b.c.d` (IBTA volume 1, annex A17).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Address(pub [u8; 16]);

impl Address {
    /// Returns the IPv4 address, or `None` for IPv6.
    #[inline]
    pub fn as_ipv4(&self) -> Option<Ipv4Addr> {
        Ipv6Addr::from_octets(self.0).to_ipv4_mapped()
    }

    /// Returns true if both addresses are equal. Compares 8-byte halves, which can be forwarded from recent
    /// stores.
    #[inline]
    pub fn is(&self, other: &Address) -> bool {
        let halves = |address: &Address| {
            let (halves, _) = address.0.as_chunks();
            [u64::from_ne_bytes(halves[0]), u64::from_ne_bytes(halves[1])]
        };
        let [a, b] = halves(self);
        let [c, d] = halves(other);
        (a ^ c) | (b ^ d) == 0
    }

    /// Returns true for an IPv4 address.
    #[inline]
    pub fn is_ipv4(&self) -> bool {
        self.as_ipv4().is_some()
    }

    /// Returns true for a multicast address.
    #[inline]
    pub fn is_multicast(&self) -> bool {
        match self.as_ipv4() {
            Some(address) => address.is_multicast(),
            None => self.as_ipv6().is_multicast(),
        }
    }

    /// Returns true if a host can have this address: not the unspecified, a multicast or the limited
    /// broadcast address.
    pub fn is_host(&self) -> bool {
        match self.as_ipv4() {
            Some(address) => !(address.is_unspecified() || address.is_multicast() || address.is_broadcast()),
            None => !(self.as_ipv6().is_unspecified() || self.as_ipv6().is_multicast()),
        }
    }

    /// Returns the IPv6 address; an IPv4 address is returned in its mapped form.
    #[inline]
    pub fn as_ipv6(&self) -> Ipv6Addr {
        Ipv6Addr::from_octets(self.0)
    }
}

impl From<Ipv4Addr> for Address {
    #[inline]
    fn from(address: Ipv4Addr) -> Address {
        // Written as two words, because a store of smaller parts could not be forwarded to a load of the
        // whole address.
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

/// An address and a UDP port.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Endpoint {
    /// IP address, which is also the GID.
    pub address: Address,
    /// UDP port of the NIC; the standard port of RoCE v2 is 4791.
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
