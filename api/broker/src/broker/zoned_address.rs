//! Addresses with their interfaces, as the communication manager uses them.

use remora_wire::Address;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

/// An address of this host or of a peer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct ZonedAddress {
    pub address: Address,
    /// The interface of a link-local address; 0 for other addresses.
    pub zone: u32,
}

impl ZonedAddress {
    pub(crate) fn of(address: SocketAddr) -> ZonedAddress {
        let zone = match address {
            SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => v6.scope_id(),
            _ => 0,
        };
        ZonedAddress { address: address.ip().into(), zone }
    }

    /// Returns whether the address is link-local without an interface, so that several hosts may have it.
    pub(crate) fn is_ambiguous(self) -> bool {
        self.zone == 0 && is_link_local(self.address)
    }

    /// Returns the socket address with this port.
    pub(crate) fn at(self, port: u16) -> SocketAddr {
        match IpAddr::from(self.address) {
            IpAddr::V6(ip) if self.zone != 0 => SocketAddrV6::new(ip, port, 0, self.zone).into(),
            ip => SocketAddr::new(ip, port),
        }
    }
}

/// Returns whether the address is in fe80::/10.
pub(super) fn is_link_local(address: Address) -> bool {
    matches!(IpAddr::from(address), IpAddr::V6(ip) if ip.is_unicast_link_local())
}
