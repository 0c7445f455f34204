//! Socket addresses: their C form, their GIDs, and the device's GID for an address.

use remora_abi::device::IbvGid;
use remora_wire::Address;
use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};

use crate::cm_device::Gid;
use crate::ibverbs;

/// Parses a socket address of the program. EINVAL for NULL and for families other than IPv4 and IPv6.
pub(crate) fn parse(address: *const libc::sockaddr) -> Result<SocketAddr, c_int> {
    if address.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: the program's structure has as many bytes as its family requires, at any alignment.
    unsafe {
        match c_int::from(address.cast::<libc::sa_family_t>().read_unaligned()) {
            libc::AF_INET => {
                let there = address.cast::<libc::sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from(u32::from_be(there.sin_addr.s_addr));
                Ok(SocketAddrV4::new(ip, u16::from_be(there.sin_port)).into())
            }
            libc::AF_INET6 => {
                let there = address.cast::<libc::sockaddr_in6>().read_unaligned();
                let ip = Ipv6Addr::from(there.sin6_addr.s6_addr);
                let port = u16::from_be(there.sin6_port);
                Ok(SocketAddrV6::new(ip, port, there.sin6_flowinfo, there.sin6_scope_id).into())
            }
            _ => Err(libc::EINVAL),
        }
    }
}

/// Converts an address to its C form.
pub(crate) fn store(address: SocketAddr) -> libc::sockaddr_storage {
    let mut storage: libc::sockaddr_storage = ibverbs::zeroed();
    let place = &raw mut storage;
    // SAFETY: the storage has space for an address of each family.
    unsafe {
        match address {
            SocketAddr::V4(address) => place.cast::<libc::sockaddr_in>().write(libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(address) => place.cast::<libc::sockaddr_in6>().write(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            }),
        }
    }
    storage
}

/// Returns the length in bytes of an address's C form.
pub(crate) fn len(address: SocketAddr) -> libc::socklen_t {
    let len =
        if address.is_ipv4() { size_of::<libc::sockaddr_in>() } else { size_of::<libc::sockaddr_in6>() };
    len as libc::socklen_t
}

/// Returns the port of an address in network order; 0 if there is no address.
pub(crate) fn port(storage: &libc::sockaddr_storage) -> u16 {
    parse((&raw const *storage).cast()).map_or(0, |address| address.port().to_be())
}

/// Returns the GID of an address.
pub(crate) fn gid(address: SocketAddr) -> IbvGid {
    IbvGid { raw: Address::from(address.ip()).0 }
}

/// Returns the interface of a link-local address; `None` for other addresses.
fn zone(address: SocketAddr) -> Option<u32> {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => Some(v6.scope_id()),
        _ => None,
    }
}

/// Checks that a link-local address names an existing interface. Without an interface, several hosts may
/// have the address.
pub(crate) fn check_zone(address: SocketAddr) -> Result<(), c_int> {
    let mut name = [0; libc::IF_NAMESIZE];
    match zone(address) {
        None => Ok(()),
        Some(0) => Err(libc::EINVAL),
        // SAFETY: the buffer has space for an interface name.
        Some(index) if unsafe { libc::if_indextoname(index, name.as_mut_ptr()) }.is_null() => {
            Err(libc::ENODEV)
        }
        Some(_) => Ok(()),
    }
}

/// Returns whether two addresses are the same GID, and for link-local ones on the same interface.
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    one.ip().to_canonical() == other.ip().to_canonical() && zone(one) == zone(other)
}

fn is_ipv4(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_ipv4()
}

/// Returns the device's first GID of the same family as an address.
fn first(gids: &[Gid], like: SocketAddr) -> Result<Gid, c_int> {
    gids.iter().find(|gid| is_ipv4(gid.address) == is_ipv4(like)).copied().ok_or(libc::ENODEV)
}

/// Returns the GID for an address of this host. The loopback address stands for the device's own address,
/// unless the device has a loopback address.
pub(crate) fn own(gids: &[Gid], address: SocketAddr) -> Result<Gid, c_int> {
    if let Some(gid) = gids.iter().find(|gid| is_same(gid.address, address)) {
        return Ok(*gid);
    }
    if is_loopback_itself(address) {
        return first(gids, address).map_err(|_| libc::EADDRNOTAVAIL);
    }
    // Binding a socket tells whether the address belongs to this host, though not to the device.
    let any_port = match address {
        SocketAddr::V6(v6) if zone(address).is_some() => {
            SocketAddrV6::new(*v6.ip(), 0, 0, v6.scope_id()).into()
        }
        _ => SocketAddr::new(address.ip().to_canonical(), 0),
    };
    let is_of_host = UdpSocket::bind(any_port).is_ok();
    Err(if is_of_host { libc::ENODEV } else { libc::EADDRNOTAVAIL })
}

/// Returns whether the address is 127.0.0.1 or ::1, by which programs name this host.
fn is_loopback_itself(address: SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    ip == IpAddr::from(Ipv4Addr::LOCALHOST) || ip == IpAddr::from(Ipv6Addr::LOCALHOST)
}

/// Returns the peer's address for a destination: an address of this device if the program gives the
/// unspecified or the loopback address.
pub(crate) fn destination(gids: &[Gid], address: SocketAddr) -> SocketAddr {
    let is_known = gids.iter().any(|gid| is_same(gid.address, address));
    let has_loopback = gids.iter().any(|gid| gid.address.ip().to_canonical().is_loopback());
    let means_own =
        address.ip().is_unspecified() || is_loopback_itself(address) && !is_known && !has_loopback;
    match first(gids, address) {
        Ok(gid) if means_own => SocketAddr::new(gid.address.ip(), address.port()),
        _ => address,
    }
}

/// Returns the GID from which packets to a destination are sent.
pub(crate) fn source(gids: &[Gid], destination: SocketAddr) -> Result<Gid, c_int> {
    let first = first(gids, destination)?;
    if let Some(gid) = gids.iter().find(|gid| is_same(gid.address, destination)) {
        return Ok(*gid);
    }
    let any: IpAddr =
        if is_ipv4(destination) { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // Connecting a UDP socket sends nothing; the system only looks up the route. A device on another address
    // uses that address.
    let routed = UdpSocket::bind((any, 0)).and_then(|socket| {
        let port = if destination.port() == 0 { 9 } else { destination.port() };
        let destination = match destination {
            SocketAddr::V6(v6) if !is_ipv4(destination) => {
                SocketAddrV6::new(*v6.ip(), port, 0, v6.scope_id()).into()
            }
            _ => SocketAddr::new(destination.ip().to_canonical(), port),
        };
        socket.connect(destination)?;
        socket.local_addr()
    });
    match routed {
        Ok(local) => Ok(gids.iter().find(|gid| is_same(gid.address, local)).copied().unwrap_or(first)),
        // Multicast groups need no route.
        Err(_) if destination.ip().to_canonical().is_multicast() => Ok(first),
        Err(error) => Err(error.raw_os_error().unwrap_or(libc::ENETUNREACH)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn gids(texts: &[&str]) -> Vec<Gid> {
        let numbered = texts.iter().zip(0..);
        numbered
            .map(|(text, index)| Gid { index, address: SocketAddr::new(text.parse().unwrap(), 0) })
            .collect()
    }

    #[test]
    fn addresses_come_back_from_their_c_form() {
        for text in ["10.0.0.1:7174", "[::1]:0", "[fe80::1%3]:4791"] {
            let stored = store(at(text));
            assert_eq!(parse((&raw const stored).cast()), Ok(at(text)));
            assert_eq!(port(&stored), at(text).port().to_be());
        }
        let mut unknown = store(at("10.0.0.1:1"));
        unknown.ss_family = 27;
        assert_eq!(parse((&raw const unknown).cast()), Err(libc::EINVAL));
        assert_eq!((parse(std::ptr::null()), port(&unknown)), (Err(libc::EINVAL), 0));
    }

    #[test]
    fn an_address_is_the_devices_the_hosts_or_nobodys() {
        let device = gids(&["127.3.4.5"]);
        assert_eq!(own(&device, at("127.3.4.5:7")), Ok(device[0]));
        assert_eq!(own(&device, at("[::ffff:127.3.4.5]:7")), Ok(device[0]));
        assert_eq!(
            own(&device, at("127.0.0.1:7")),
            Ok(device[0]),
            "the loopback address stands for this host"
        );
        assert_eq!(own(&device, at("127.0.0.9:7")), Err(libc::ENODEV));
        assert_eq!(own(&device, at("192.0.2.1:7")), Err(libc::EADDRNOTAVAIL));
        assert_eq!(own(&device, at("[::1]:7")), Err(libc::EADDRNOTAVAIL));
    }

    #[test]
    fn a_link_local_address_is_that_of_its_interface() {
        let device: Vec<Gid> = [3, 4]
            .iter()
            .map(|index| Gid { index: *index, address: at(&format!("[fe80::1%{index}]:0")) })
            .collect();
        assert_eq!(own(&device, at("[fe80::1%4]:7")), Ok(device[1]));
        assert_eq!(source(&device, at("[fe80::1%3]:7")), Ok(device[0]));
        assert!(own(&device, at("[fe80::1%5]:7")).is_err());
        assert_eq!(check_zone(at("[fe80::1]:7")), Err(libc::EINVAL));
        assert_eq!(check_zone(at("[fe80::1%999999]:7")), Err(libc::ENODEV));
        assert_eq!((check_zone(at("[fe80::1%1]:7")), check_zone(at("[fd00::1]:7"))), (Ok(()), Ok(())));
    }

    #[test]
    fn packets_leave_from_the_destination_itself_the_route_or_the_first_of_the_family() {
        let device = gids(&["127.3.4.5", "127.0.0.1"]);
        assert_eq!(source(&device, at("127.3.4.5:7")), Ok(device[0]));
        assert_eq!(source(&device, at("127.9.9.9:7")), Ok(device[1]), "the source address of the route");
        assert_eq!(source(&device[..1], at("127.9.9.9:7")), Ok(device[0]));
        assert_eq!(source(&device, at("[::1]:7")), Err(libc::ENODEV));
        assert!(source(&device, at("239.1.1.1:0")).is_ok());
    }

    #[test]
    fn who_says_loopback_or_any_means_the_devices_own_address() {
        let device = gids(&["10.0.0.1"]);
        assert_eq!(destination(&device, at("127.0.0.1:7")), at("10.0.0.1:7"));
        assert_eq!(destination(&device, at("0.0.0.0:7")), at("10.0.0.1:7"));
        assert_eq!(destination(&device, at("10.0.0.2:7")), at("10.0.0.2:7"));
        assert_eq!(destination(&gids(&["127.0.0.2"]), at("127.0.0.1:7")), at("127.0.0.1:7"));
    }
}
