//! Finds the interface that has an address: its MTU and its index.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Returns the index of the interface that has `address`.
pub(super) fn interface_of(address: IpAddr) -> Option<u32> {
    // SAFETY: the name is a string that ends in zero and lives through the call.
    of_interface_with(address, |name| match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => None,
        index => Some(index),
    })
}

/// Returns the MTU in bytes of the interface that has `address`, queried through `socket`. All of
/// 127.0.0.0/8 belongs to the loopback interface. `None` if no interface has the address, or the kernel
/// does not report the MTU.
pub(super) fn of_address(socket: BorrowedFd<'_>, address: SocketAddr) -> Option<usize> {
    let loopback = address.ip().is_loopback() && address.is_ipv4();
    let wanted = if loopback { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { address.ip() };
    of_interface_with(wanted, |name| of_interface(socket, name))
}

/// Calls `look` with the name of the interface that has this address, and returns its result.
fn of_interface_with<R>(wanted: IpAddr, look: impl Fn(&CStr) -> Option<R>) -> Option<R> {
    let mut first: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: on success the kernel's list is allocated and `first` points to it; it is freed once, below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return None;
    }
    let mut result = None;
    let mut next = first;
    while !next.is_null() && result.is_none() {
        // SAFETY: `next` is an entry of the list that getifaddrs made and that is not freed yet.
        let entry = unsafe { &*next };
        // SAFETY: an entry's address is null or a whole socket address of the family that it starts with.
        if unsafe { ip(entry.ifa_addr) } == Some(wanted) {
            // SAFETY: an entry's name is a string that ends in zero and lives as long as the list.
            result = look(unsafe { CStr::from_ptr(entry.ifa_name) });
        }
        next = entry.ifa_next;
    }
    // SAFETY: `first` came from getifaddrs and nothing borrowed from the list is used after this.
    unsafe { libc::freeifaddrs(first) };
    result
}

/// Returns the IP address at `address`; `None` if it is of another family.
///
/// # Safety
/// `address` is null or points to a whole socket address of the family that it starts with.
unsafe fn ip(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null, so a socket address, which starts with its family.
    match libc::c_int::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family shows that it is a sockaddr_in.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family shows that it is a sockaddr_in6.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

/// Returns the MTU of the interface with this name.
fn of_interface(socket: BorrowedFd<'_>, name: &CStr) -> Option<usize> {
    // SAFETY: an ifreq is plain old data for which all zeros is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let capacity = request.ifr_name.len();
    // The last byte stays zero and terminates the name. An alias ("eth0:1") is queried by the name of its
    // interface.
    let name = name.to_bytes().split(|byte| *byte == b':').next().unwrap_or(&[]);
    for (target, source) in request.ifr_name[..capacity - 1].iter_mut().zip(name) {
        *target = *source as libc::c_char;
    }
    // SAFETY: SIOCGIFMTU reads the name of, and writes the MTU to, `request`, which lives through the call.
    let status = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) };
    if status != 0 {
        return None;
    }
    // SAFETY: SIOCGIFMTU succeeded, so the union holds the MTU.
    usize::try_from(unsafe { request.ifr_ifru.ifru_mtu }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn loopback_has_its_mtu_under_each_of_its_addresses_and_a_foreign_address_has_none() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let loopback = of_address(socket.as_fd(), "127.0.0.1:1".parse().unwrap());
        assert!(loopback.is_some_and(|mtu| mtu >= 1280), "{loopback:?}");
        assert_eq!(of_address(socket.as_fd(), "127.9.9.9:1".parse().unwrap()), loopback);
        assert_eq!(of_address(socket.as_fd(), "[::1]:1".parse().unwrap()), loopback);
        // TEST-NET-3 (RFC 5737): no interface has it.
        assert_eq!(of_address(socket.as_fd(), "203.0.113.1:1".parse().unwrap()), None);
    }
}
