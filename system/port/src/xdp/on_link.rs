//! Hosts on the same link as this one: whether the kernel knows their hardware addresses.

use super::neighbours::{NextHop, Reachability, known, next_hop};
use super::netlink::{Ask, Netlink};
use super::rtnetlink::{Link, Message};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// UDP port of the datagram that makes the kernel resolve a host: that of the discard service.
const DISCARD: u16 = 9;

/// A host on a link, whose hardware address the kernel has to resolve by ARP or ND.
#[derive(Debug)]
pub struct OnLinkHost {
    netlink: Netlink,
    interface: u32,
    address: SocketAddr,
}

impl OnLinkHost {
    /// Finds the host to which packets from `source` to `destination` go without a router. `None` if the
    /// packets go through a router, stay on this host, or leave by an interface without ARP and ND, or if
    /// the kernel does not answer. A link-local address must name its interface.
    pub fn find(source: IpAddr, destination: SocketAddr) -> Option<OnLinkHost> {
        let mut netlink = Netlink::open(&[]).ok()?;
        let ip = destination.ip().to_canonical();
        let zone = zone(destination);
        let hop = next_hop(&mut netlink, source.to_canonical(), ip, zone).ok()?;
        let NextHop::Out { interface, hop } = hop else { return None };
        let address = match destination {
            SocketAddr::V6(mut v6) if ip.is_ipv6() => {
                v6.set_port(DISCARD);
                v6.into()
            }
            _ => SocketAddr::new(ip, DISCARD),
        };
        let is_asked_for = hop == ip && has_neighbours(&mut netlink, interface);
        is_asked_for.then_some(OnLinkHost { netlink, interface, address })
    }

    /// Returns whether the kernel knows the hardware address; also true if the kernel does not answer.
    pub fn is_known(&mut self) -> bool {
        let state = known(&mut self.netlink, self.interface, self.address.ip());
        matches!(state, Ok(Reachability::Fresh(_) | Reachability::Stale(_)) | Err(_))
    }

    /// Returns whether the kernel is waiting for the host's answer.
    pub fn is_asked(&mut self) -> bool {
        matches!(known(&mut self.netlink, self.interface, self.address.ip()), Ok(Reachability::Asking))
    }

    /// Makes the kernel resolve the host, by sending an empty datagram.
    ///
    /// # Errors
    /// The error of sending the datagram.
    pub fn ask(&self) -> std::io::Result<()> {
        let any: IpAddr = match self.address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        UdpSocket::bind((any, 0))?.send_to(&[], self.address).map(|_| ())
    }
}

fn zone(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(v6) => v6.scope_id(),
    }
}

/// Returns whether hosts on the interface are resolved by ARP or ND.
fn has_neighbours(netlink: &mut Netlink, interface: u32) -> bool {
    let question = Link { index: interface, ..Link::default() };
    let mut has = false;
    let asked = netlink.ask(Message::GetLink(question), Ask::One, |answer| {
        if let Message::NewLink(link) = answer {
            has = !link.has_any(libc::IFF_NOARP | libc::IFF_LOOPBACK);
        }
    });
    asked.is_ok() && has
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_and_the_loopback_need_no_neighbour() {
        for [source, destination] in
            [["127.0.0.1", "127.0.0.9:7"], ["::1", "[::1]:7"], ["127.0.0.1", "127.0.0.1:0"]]
        {
            let host = OnLinkHost::find(source.parse().unwrap(), destination.parse().unwrap());
            assert!(host.is_none(), "{destination}: {host:?}");
        }
    }
}
