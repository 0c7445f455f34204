//! The interfaces of this network namespace, and their addresses.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use remora_port::address::{is_broadcast, is_usable, single};

use crate::name::standard;

/// Maximum number of entries of the kernel's list that are read. An interface has one entry, and one for
/// each address.
const MOST: usize = 4096;

/// An interface's state in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Interface {
    /// True if the interface is up and has a carrier.
    runs: bool,
    /// The interface's index.
    index: u32,
    addresses: Vec<IpAddr>,
}

/// All interfaces at one moment, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interfaces(BTreeMap<String, Interface>);

impl Interfaces {
    /// Asks the kernel. Empty if the kernel does not answer.
    pub(crate) fn now() -> Interfaces {
        let mut all = Interfaces::default();
        let mut first = std::ptr::null_mut();
        // SAFETY: the C library writes one pointer to a list.
        if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
            return all;
        }
        let wanted = (libc::IFF_UP | libc::IFF_RUNNING) as u32;
        let mut next = first;
        for _ in 0..MOST {
            // SAFETY: NULL, or an entry of the list, which lives until it is freed.
            let Some(entry) = (unsafe { next.as_ref() }) else { break };
            // SAFETY: each entry has a name.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            let interface = all.0.entry(name.to_string_lossy().into_owned()).or_default();
            if interface.index == 0 {
                // SAFETY: a C string.
                interface.index = unsafe { libc::if_nametoindex(name.as_ptr()) };
            }
            interface.runs |= entry.ifa_flags & wanted == wanted;
            interface.addresses.extend(address(entry.ifa_addr));
            next = entry.ifa_next;
        }
        // SAFETY: the list is the C library's, and nothing points into it any more.
        unsafe { libc::freeifaddrs(first) };
        all
    }

    /// The name of the interface that has this address, or `None`. A link-local address may name its
    /// interface.
    pub(crate) fn of(&self, address: SocketAddr) -> Option<&str> {
        let ip = address.ip();
        let scope = scope(address);
        let has = |wanted: &dyn Fn(&IpAddr) -> bool| {
            let mut within = self.0.iter().filter(|(_, interface)| scope == 0 || interface.index == scope);
            let entry = within.find(|(_, interface)| interface.addresses.iter().any(wanted));
            entry.map(|(name, _)| name.as_str())
        };
        // The whole of 127.0.0.0/8 belongs to the loopback interface.
        has(&|own| *own == ip).or_else(|| has(&|own| ip.is_loopback() && own.is_loopback()))
    }

    /// The name of the interface with this index.
    pub(crate) fn name(&self, index: u32) -> Option<&str> {
        let entry = self.0.iter().find(|(_, interface)| interface.index == index);
        entry.map(|(name, _)| name.as_str())
    }

    /// All addresses that one NIC may have, in the order of a GID table: IPv4, IPv6, loopback, link-local.
    /// Addresses under duplicate address detection are left out: the kernel notifies when they become usable.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let each = self.0.values().flat_map(|interface| {
            interface.addresses.iter().map(|ip| match ip {
                IpAddr::V6(ip) if ip.is_unicast_link_local() => {
                    SocketAddrV6::new(*ip, 0, 0, interface.index).into()
                }
                ip => SocketAddr::new(*ip, 0),
            })
        });
        let fit = |address: &SocketAddr| {
            let ip = address.ip();
            single(ip).is_ok() && is_usable(ip, scope(*address)) && !is_broadcast(ip)
        };
        let mut addresses: Vec<SocketAddr> = each.filter(fit).map(standard).collect();
        addresses.sort_by_key(|address| (rank(address.ip()), *address));
        addresses.dedup();
        addresses
    }

    /// The index of the interface with this name; 0 if there is none.
    pub(crate) fn index(&self, name: &str) -> u32 {
        self.0.get(name).map_or(0, |interface| interface.index)
    }

    /// Returns whether the interface with this name is up and has a carrier.
    pub(crate) fn runs(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|interface| interface.runs)
    }
}

/// The position of a kind of address in the order of the GID table.
fn rank(ip: IpAddr) -> u8 {
    match ip {
        _ if ip.is_loopback() => 2 + u8::from(ip.is_ipv6()),
        IpAddr::V4(ip) if ip.is_link_local() => 4,
        IpAddr::V6(ip) if ip.is_unicast_link_local() => 5,
        IpAddr::V4(_) => 0,
        IpAddr::V6(_) => 1,
    }
}

/// The index of the interface that an address names; 0 if it names none.
fn scope(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(v6) => v6.scope_id(),
    }
}

fn address(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: NULL, or a socket address of the family that it names.
    unsafe {
        match i32::from(address.as_ref()?.sa_family) {
            libc::AF_INET => {
                let v4 = address.cast::<libc::sockaddr_in>().read_unaligned();
                Some(Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes()).into())
            }
            libc::AF_INET6 => {
                let v6 = address.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_loopback_address_is_the_loopback_interfaces() {
        let interfaces = Interfaces::now();
        let name_of = |text: &str| interfaces.of(SocketAddr::new(text.parse().unwrap(), 0));
        assert_eq!(
            (name_of("127.0.0.1"), name_of("127.77.3.9"), name_of("192.0.2.77")),
            (Some("lo"), Some("lo"), None)
        );
        assert!(interfaces.index("lo") != 0 && interfaces.index("remora-no-such") == 0);
        assert!(interfaces.runs("lo") && !interfaces.runs("remora-no-such"));
        assert_eq!(interfaces.name(interfaces.index("lo")), Some("lo"));
    }

    #[test]
    fn addresses_stand_in_the_order_of_a_gid_table_and_those_that_no_nic_can_have_are_left_out() {
        let interface = |index, addresses: &[&str]| Interface {
            runs: true,
            index,
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
        };
        let lo = interface(1, &["::1", "127.0.0.1", "127.255.255.255"]);
        let eth0 = interface(2, &["fe80::7", "2001:db8::7", "10.255.0.7", "10.255.0.7", "0.0.0.0"]);
        let all = BTreeMap::from([("lo".to_owned(), lo), ("eth0".to_owned(), eth0)]);
        let names: Vec<String> = Interfaces(all).addresses().into_iter().map(crate::name::ip).collect();
        assert_eq!(names, ["10.255.0.7", "2001:db8::7", "127.0.0.1", "::1", "fe80::7%2"]);
    }
}
