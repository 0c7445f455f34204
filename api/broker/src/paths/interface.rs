//! The interface that an address belongs to.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Interfaces and their addresses that are looked at.
const MOST: usize = 4096;

/// The name of the interface that has this address; `None`: no interface does.
pub(super) fn of(ip: IpAddr) -> Option<String> {
    let known = all();
    let exact = known.iter().find(|(_, own)| *own == ip);
    // The whole of 127.0.0.0/8 is the loopback interface's.
    let loopback = || known.iter().find(|(_, own)| ip.is_loopback() && own.is_loopback());
    exact.or_else(loopback).map(|(name, _)| name.clone())
}

fn all() -> Vec<(String, IpAddr)> {
    let mut first = std::ptr::null_mut();
    // SAFETY: the C library writes one pointer to a list.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut next = first;
    for _ in 0..MOST {
        // SAFETY: NULL, or an entry of the list, which lives until it is freed.
        let Some(entry) = (unsafe { next.as_ref() }) else { break };
        if let Some(ip) = address(entry.ifa_addr) {
            // SAFETY: each entry has a name.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            found.push((name.to_string_lossy().into_owned(), ip));
        }
        next = entry.ifa_next;
    }
    // SAFETY: the list is the C library's, and nothing points into it any more.
    unsafe { libc::freeifaddrs(first) };
    found
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
        assert_eq!(of("127.0.0.1".parse().unwrap()).as_deref(), Some("lo"));
        assert_eq!(of("127.77.3.9".parse().unwrap()).as_deref(), Some("lo"));
        assert_eq!(of("192.0.2.77".parse().unwrap()), None);
    }
}
