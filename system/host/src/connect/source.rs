//! The source address of a set-up. It is the address of the NIC, like that of the NIC's frames, so that a
//! server can tell whether a client really has the NIC that it names.

use remora_port::{address, udp};
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, TcpStream};
use std::time::Duration;

use super::ConnectError;
use super::message::Hello;
use crate::port_kind::PortKind;

/// Connects from the address of the NIC named in `hello`. The system chooses another source if that address
/// is of another family than the server's, or not in this network namespace.
pub(super) fn connect(server: SocketAddr, hello: &Hello, timeout: Duration) -> io::Result<TcpStream> {
    let Some(source) = source(server, hello) else { return TcpStream::connect_timeout(&server, timeout) };
    let socket = Socket::new(Domain::for_address(server), Type::STREAM, None)?;
    if udp::bind_source(&socket, source).is_err() {
        return TcpStream::connect_timeout(&server, timeout);
    }
    socket.connect_timeout(&server.into(), timeout)?;
    Ok(socket.into())
}

/// Returns the address to connect from, with the interface that a link-local one needs; `None` lets the
/// system choose.
fn source(server: SocketAddr, hello: &Hello) -> Option<SocketAddr> {
    if hello.kind == PortKind::Shm {
        return None;
    }
    match (IpAddr::from(hello.endpoint.address), server) {
        (ip @ IpAddr::V4(_), SocketAddr::V4(_)) => Some(SocketAddr::new(ip, 0)),
        (IpAddr::V6(ip), SocketAddr::V6(server)) if ip.is_unicast_link_local() => {
            let scope = match server.scope_id() {
                0 => address::interface_of(ip)?,
                scope => scope,
            };
            Some(SocketAddrV6::new(ip, 0, 0, scope).into())
        }
        (ip @ IpAddr::V6(_), SocketAddr::V6(_)) => Some(SocketAddr::new(ip, 0)),
        _ => None,
    }
}

/// Checks that the address of the NIC in a client's hello is the address that its TCP connection comes
/// from. A client on this host may use any address of this host, because a connection to an own address may
/// have any of them as its source.
///
/// # Errors
/// `OtherSource`.
pub(super) fn check(hello: &Hello, peer: SocketAddr) -> Result<(), ConnectError> {
    let claimed = IpAddr::from(hello.endpoint.address);
    let peer = peer.ip().to_canonical();
    if hello.kind == PortKind::Shm || claimed == peer {
        return Ok(());
    }
    if address::is_local(peer) && address::is_local(claimed) {
        return Ok(());
    }
    Err(ConnectError::OtherSource { claimed, from: peer })
}

#[cfg(test)]
mod tests {
    use super::super::message::LinkOffer;
    use super::*;
    use remora_wire::frame::Endpoint;

    fn claim(kind: PortKind, address: &str, peer: &str) -> Result<(), ConnectError> {
        let address = address.parse::<IpAddr>().unwrap().into();
        let hello = Hello {
            kind,
            link: LinkOffer::None,
            path_mtu: 1024,
            service: remora_nic::Service::Rc,
            qkey: 0,
            qp: remora_wire::Qpn::new(17),
            psn: remora_wire::Psn::new(1),
            initiator_depth: 1,
            responder_resources: 1,
            endpoint: Endpoint { address, udp_port: 4791 },
            engine: crate::EngineId(7),
            extensions: 0,
            irn_reach: 0,
            private_data: Vec::new(),
        };
        check(&hello, SocketAddr::new(peer.parse().unwrap(), 7))
    }

    #[test]
    fn a_nic_on_another_host_than_the_connection_is_refused() {
        for kind in [PortKind::Udp, PortKind::Xdp] {
            for (claimed, peer) in [
                ("192.0.2.9", "192.0.2.8"),
                ("192.0.2.9", "127.0.0.1"),
                ("127.0.0.1", "192.0.2.8"),
                ("2001:db8::9", "2001:db8::8"),
                ("2001:db8::9", "192.0.2.9"),
            ] {
                let refused = claim(kind, claimed, peer).unwrap_err().to_string();
                assert!(refused.contains(claimed) && refused.contains(peer), "{refused}");
            }
        }
    }

    #[test]
    fn a_nic_at_the_source_of_the_connection_is_taken_in_every_spelling() {
        for (claimed, peer) in [
            ("192.0.2.9", "192.0.2.9"),
            ("192.0.2.9", "::ffff:192.0.2.9"),
            ("2001:db8::9", "2001:db8::9"),
            ("fe80::9", "fe80::9"),
        ] {
            claim(PortKind::Udp, claimed, peer).unwrap();
        }
    }

    #[test]
    fn a_client_on_this_host_may_name_any_address_of_it_and_shared_memory_has_none() {
        claim(PortKind::Udp, "127.0.0.9", "127.0.0.1").unwrap();
        claim(PortKind::Udp, "127.0.0.9", "::1").unwrap();
        claim(PortKind::Shm, "192.0.2.9", "192.0.2.8").unwrap();
    }
}
