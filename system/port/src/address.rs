//! Addresses of NICs and listeners: their canonical form, checks for addresses that no single host can
//! have, and duplicate address detection.

use remora_wire::frame::Address;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::path::Path;
use std::time::{Duration, Instant};

/// Time within which duplicate address detection (RFC 4862) ends. It usually takes one or two seconds, but
/// longer on a very busy machine.
pub const DETECTION: Duration = Duration::from_secs(20);
/// Interval between two reads of the kernel's table.
const PAUSE: Duration = Duration::from_millis(20);

/// The reason why a NIC cannot have an address. The message of each variant says what to do.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// `0.0.0.0` or `::`. The ICRC covers the source address, so the NIC needs one particular address.
    #[error(
        "{0} means every address, but the checksum of a RoCE frame covers its source address: choose one \
         that `ip address` lists"
    )]
    Unspecified(IpAddr),
    /// The address of a multicast group.
    #[error(
        "{0} is a multicast group's address, and a NIC needs an address of its own: choose one that `ip \
         address` lists"
    )]
    Multicast(IpAddr),
    /// The limited broadcast address, or the broadcast address of a network of this machine.
    #[error(
        "{0} is a broadcast address, and a NIC needs an address of its own: choose one that `ip address` \
         lists"
    )]
    Broadcast(IpAddr),
    /// A link-local address without an interface. Such addresses exist on every interface's network.
    #[error(
        "{0} is a link-local address, which is ambiguous without its interface: choose one as in {0}%eth0 \
         (`ip -6 address` lists both)"
    )]
    NoZone(IpAddr),
    /// The kernel is still checking that no other machine has the address (duplicate address detection).
    #[error(
        "{0} is not usable after {seconds} s, because the kernel has not finished its duplicate address \
         detection (`ip -6 address` shows `tentative`): check that the link is up, or try again later",
        seconds = DETECTION.as_secs()
    )]
    Tentative(IpAddr),
    /// Another machine on the network has the address.
    #[error(
        "{0} belongs to another machine, too (`ip -6 address` shows `dadfailed`): choose another address, \
         or remove it there"
    )]
    Duplicate(IpAddr),
}

/// Returns the canonical form of a socket address: `::ffff:a.b.c.d` becomes the IPv4 address a.b.c.d, as in
/// a GID (IBTA volume 1, annex A17).
pub fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddrV4::new(ip, address.port()).into(),
        // The scope (the interface) is kept.
        IpAddr::V6(_) => address,
    }
}

/// Checks that the address can be the address of one NIC or one listener. Only the address itself is
/// examined; the network is not asked.
///
/// # Errors
/// `Unspecified`, `Multicast`, or `Broadcast` (for 255.255.255.255 only).
pub fn single(ip: IpAddr) -> Result<(), Unfit> {
    let ip = ip.to_canonical();
    match ip {
        _ if ip.is_unspecified() => Err(Unfit::Unspecified(ip)),
        _ if Address::from(ip).is_host() => Ok(()),
        _ if ip.is_multicast() => Err(Unfit::Multicast(ip)),
        _ => Err(Unfit::Broadcast(ip)),
    }
}

/// Checks that a link-local address has an interface.
///
/// # Errors
/// `NoZone` for a link-local address without an interface.
pub fn zoned(address: SocketAddr) -> Result<(), Unfit> {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0 => {
            Err(Unfit::NoZone(address.ip()))
        }
        _ => Ok(()),
    }
}

/// Returns whether the address is the broadcast address of a network of this machine. The kernel is asked
/// by a socket; nothing is sent.
pub fn is_broadcast(ip: IpAddr) -> bool {
    let IpAddr::V4(ip) = ip.to_canonical() else { return false };
    let kind = SocketType::DGRAM;
    let flags = SocketFlags::CLOEXEC;
    let Ok(socket) = rustix::net::socket_with(AddressFamily::INET, kind, flags, None) else { return false };
    // Port 9 is the discard service. Connecting a datagram socket sends nothing.
    rustix::net::connect(&socket, &SocketAddrV4::new(ip, 9)) == Err(Errno::ACCESS)
}

/// Returns whether this host has the address, in the network namespace of this thread. The kernel is asked
/// by a socket; nothing is sent. Returns false for an address that the kernel is still checking.
pub fn is_local(ip: IpAddr) -> bool {
    let interface = match ip {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => interface_of(v6).unwrap_or(0),
        _ => 0,
    };
    std::net::UdpSocket::bind(with_scope(ip, interface)).is_ok()
}

/// Returns the interface of this host that has this link-local address; `None` if no interface or several
/// have it.
pub fn interface_of(ip: Ipv6Addr) -> Option<u32> {
    let table = table()?;
    let mut interfaces = rows(&table).filter(|row| row.0 == ip).map(|row| row.1);
    interfaces.next().filter(|_| interfaces.next().is_none())
}

fn with_scope(ip: IpAddr, interface: u32) -> SocketAddr {
    match ip {
        IpAddr::V4(ip) => SocketAddrV4::new(ip, 0).into(),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, 0, 0, interface).into(),
    }
}

/// Returns a loopback address of this machine, IPv4 before IPv6; `None` if the loopback interface is down.
pub fn loopback() -> Option<IpAddr> {
    let both = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
    both.into_iter().find(|ip| std::net::UdpSocket::bind((*ip, 0)).is_ok())
}

/// The state of an IPv6 address in the kernel's table.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Checked {
    /// The address is usable, or the kernel does not report its state.
    Usable,
    Tentative,
    Duplicate,
    /// This machine does not have the address.
    Absent,
}

/// Flags of the kernel's table (`IFA_F_*` in `if_addr.h`).
const OPTIMISTIC: u32 = 0x04;
const DAD_FAILED: u32 = 0x08;
const TENTATIVE: u32 = 0x40;

/// Parses lines of `/proc/net/if_inet6`: address, interface, prefix length, scope, flags, name, all but the
/// last in hexadecimal. Yields address, interface and flags.
fn rows(table: &str) -> impl Iterator<Item = (Ipv6Addr, u32, u32)> + '_ {
    table.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = u128::from_str_radix(words.next()?, 16).ok()?;
        let interface = u32::from_str_radix(words.next()?, 16).ok()?;
        let flags = u32::from_str_radix(words.nth(2)?, 16).ok()?;
        Some((address.into(), interface, flags))
    })
}

fn of_flags(flags: u32) -> Checked {
    match flags {
        _ if flags & DAD_FAILED != 0 => Checked::Duplicate,
        _ if flags & TENTATIVE != 0 && flags & OPTIMISTIC == 0 => Checked::Tentative,
        _ => Checked::Usable,
    }
}

fn look(table: &str, ip: Ipv6Addr, interface: u32) -> Checked {
    let its = |row: &(Ipv6Addr, u32, u32)| row.0 == ip && (interface == 0 || row.1 == interface);
    rows(table).find(its).map_or(Checked::Absent, |(_, _, flags)| of_flags(flags))
}

/// Reads the kernel's table in the network namespace of this thread.
fn table() -> Option<String> {
    std::fs::read_to_string(Path::new("/proc/thread-self/net/if_inet6")).ok()
}

/// Waits, for at most [`DETECTION`], until the kernel has established that no other machine has this
/// address. `interface` is the index of the address's interface, or 0 for any. Returns true if the address
/// became usable during the call, and false if there was nothing to wait for.
///
/// # Errors
/// `Tentative` if the check has not ended in time; `Duplicate` if another machine has the address.
pub fn settle(ip: IpAddr, interface: u32) -> Result<bool, Unfit> {
    let IpAddr::V6(v6) = ip.to_canonical() else { return Ok(false) };
    let started = Instant::now();
    let mut waited = false;
    loop {
        match table().map_or(Checked::Usable, |table| look(&table, v6, interface)) {
            Checked::Usable | Checked::Absent => return Ok(waited),
            Checked::Duplicate => return Err(Unfit::Duplicate(ip)),
            Checked::Tentative if started.elapsed() > DETECTION => return Err(Unfit::Tentative(ip)),
            Checked::Tentative => waited = true,
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns whether sockets can use this address now. They cannot while the kernel is checking the address,
/// or if another machine has it. `interface` is the index of the address's interface, or 0 for any.
pub fn is_usable(ip: IpAddr, interface: u32) -> bool {
    let IpAddr::V6(v6) = ip.to_canonical() else { return true };
    let state = table().map_or(Checked::Usable, |table| look(&table, v6, interface));
    matches!(state, Checked::Usable | Checked::Absent)
}

/// Returns an address of this interface that the kernel is still checking; `None` if there is none.
pub(crate) fn tentative(interface: u32) -> Option<IpAddr> {
    let table = table()?;
    let mut its = rows(&table).filter(|row| row.1 == interface && of_flags(row.2) == Checked::Tentative);
    its.next().map(|row| row.0.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_mapped_address_is_the_ipv4_address() {
        let mapped: SocketAddr = "[::ffff:127.0.0.1]:4791".parse().unwrap();
        assert_eq!(canonical(mapped), "127.0.0.1:4791".parse().unwrap());
        let zoned: SocketAddr = "[fe80::1%3]:4791".parse().unwrap();
        assert_eq!(canonical(zoned), zoned);
    }

    #[test]
    fn what_names_no_single_host_is_refused_in_every_spelling() {
        let cases = [
            ("224.0.0.1", Unfit::Multicast(ip("224.0.0.1"))),
            ("::ffff:239.1.2.3", Unfit::Multicast(ip("239.1.2.3"))),
            ("ff02::1", Unfit::Multicast(ip("ff02::1"))),
            ("255.255.255.255", Unfit::Broadcast(ip("255.255.255.255"))),
            ("::ffff:255.255.255.255", Unfit::Broadcast(ip("255.255.255.255"))),
            ("0.0.0.0", Unfit::Unspecified(ip("0.0.0.0"))),
            ("::ffff:0.0.0.0", Unfit::Unspecified(ip("0.0.0.0"))),
            ("::", Unfit::Unspecified(ip("::"))),
        ];
        for (text, unfit) in cases {
            assert_eq!(single(ip(text)), Err(unfit), "{text}");
            let words = unfit.to_string();
            assert!(!words.contains('\n') && words.contains(": choose "), "{words}");
        }
        assert_eq!((single(ip("10.0.0.1")), single(ip("fe80::1"))), (Ok(()), Ok(())));
        assert_eq!(zoned("[fe80::1]:0".parse().unwrap()), Err(Unfit::NoZone(ip("fe80::1"))));
        assert_eq!(zoned("[fe80::1%2]:0".parse().unwrap()), Ok(()));
    }

    #[test]
    fn the_broadcast_address_of_a_network_is_known() {
        assert!(is_broadcast(ip("127.255.255.255")) && is_broadcast(ip("::ffff:127.255.255.255")));
        assert!(!is_broadcast(ip("127.0.0.1")) && !is_broadcast(ip("::1")));
    }

    #[test]
    fn addresses_of_other_hosts_are_not_local() {
        assert!(is_local(ip("127.0.0.77")) && is_local(ip("::1")));
        assert!(!is_local(ip("192.0.2.1")) && !is_local(ip("2001:db8::1")) && !is_local(ip("fe80::1:2:3")));
    }

    #[test]
    fn the_kernels_table_tells_what_is_still_checked() {
        let table = "fd000000000000000000000000000001 02 40 00 40     eth0\n\
                     fd000000000000000000000000000002 02 40 00 48     eth0\n\
                     fd000000000000000000000000000003 02 40 00 44     eth0\n\
                     00000000000000000000000000000001 01 80 10 80       lo\n\
                     nonsense\n";
        let lookup = |text: &str, interface| look(table, text.parse().unwrap(), interface);
        assert_eq!(lookup("fd00::1", 0), Checked::Tentative);
        assert_eq!(lookup("fd00::1", 3), Checked::Absent, "another interface's");
        assert_eq!(lookup("fd00::2", 2), Checked::Duplicate);
        assert_eq!(lookup("fd00::3", 2), Checked::Usable, "optimistic");
        assert_eq!(lookup("::1", 0), Checked::Usable);
        assert_eq!(settle(ip("::1"), 0), Ok(false));
        assert_eq!(settle(ip("10.0.0.1"), 0), Ok(false));
        assert!(is_usable(ip("::1"), 0) && is_usable(ip("10.0.0.1"), 0));
    }
}
