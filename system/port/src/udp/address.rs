//! Conversion between endpoints (RoCE GIDs with a UDP port) and socket addresses.

use remora_wire::frame::Endpoint;
use rustix::net::SocketAddrAny;
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};

/// Returns the endpoint of a socket address: its GID is the IPv6 address, or `::ffff:a.b.c.d` for IPv4
/// (IBTA volume 1, annex A17). The interface of a link-local address is dropped; the port knows it.
pub fn endpoint(address: SocketAddr) -> Endpoint {
    Endpoint { address: address.ip().into(), udp_port: address.port() }
}

/// Returns the socket address of an endpoint: IPv4 if its GID is `::ffff:a.b.c.d`, otherwise IPv6 on
/// interface `scope` (which matters only for link-local addresses).
pub fn socket_address(endpoint: Endpoint, scope: u32) -> SocketAddr {
    let gid = endpoint.address;
    match gid.as_ipv4() {
        Some(ip) => SocketAddrV4::new(ip, endpoint.udp_port).into(),
        None => SocketAddrV6::new(gid.as_ipv6(), endpoint.udp_port, 0, scope).into(),
    }
}

/// Returns the interface index of a link-local IPv6 address, otherwise 0.
pub(super) fn scope(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(address) => address.scope_id(),
    }
}

/// Returns the endpoint of an address that the kernel wrote; `None` if it is not an IP address.
#[inline(always)]
pub(super) fn of_kernel(address: &SocketAddrAny) -> Option<Endpoint> {
    SocketAddr::try_from(address.clone()).ok().map(endpoint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_endpoint_is_the_mapped_gid_and_comes_back() {
        let address: SocketAddr = "10.1.2.3:4791".parse().unwrap();
        let named = endpoint(address);
        assert_eq!(named.address.0, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3]);
        assert_eq!(named.udp_port, 4791);
        assert_eq!(socket_address(named, 7), address);
    }

    #[test]
    fn an_ipv6_endpoint_keeps_its_bytes_and_a_link_local_one_gets_the_ports_interface() {
        let address: SocketAddr = "[fd00::5:1]:50001".parse().unwrap();
        assert_eq!(socket_address(endpoint(address), 0), address);
        let link_local = endpoint("[fe80::1]:4791".parse().unwrap());
        assert_eq!(scope(socket_address(link_local, 3)), 3);
    }

    #[test]
    fn what_the_kernel_writes_is_read_back() {
        for text in ["127.0.0.1:4791", "[::1]:4792"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(of_kernel(&SocketAddrAny::from(address)), Some(endpoint(address)));
        }
    }
}
