//! Resolution of names and services (`rdma_getaddrinfo`), by the C library's resolver.

use remora_abi::cma::{PS_TCP, PS_UDP, RAI_FAMILY, RAI_NUMERICHOST, RAI_PASSIVE, RdmaAddrinfo};
use remora_abi::queue_pair::{QPT_RC, QPT_UD};
use std::ffi::{CStr, c_char, c_int};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::{address, errno, ibverbs};

/// A result of the resolution, with the data that it points to.
#[repr(C)]
pub(crate) struct Found {
    verbs: RdmaAddrinfo,
    source: libc::sockaddr_storage,
    destination: libc::sockaddr_storage,
    /// The host's canonical name from the resolver, or NULL.
    name: *mut c_char,
}

// SAFETY: the name belongs to the value, and its other pointers are set only when it has its final place.
unsafe impl Send for Found {}

impl Clone for Found {
    fn clone(&self) -> Found {
        // SAFETY: NULL, or a C string that belongs to the value.
        let name = if self.name.is_null() { self.name } else { unsafe { libc::strdup(self.name) } };
        Found { name, ..*self }
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        // SAFETY: NULL, or allocated by the C library for this value.
        unsafe { libc::free(self.name.cast()) };
    }
}

/// Returns the resolver's hints for the hints of a program.
fn resolver_hints(hints: &RdmaAddrinfo) -> libc::addrinfo {
    let mut asked: libc::addrinfo = ibverbs::zeroed();
    for (flag, means) in [(RAI_PASSIVE, libc::AI_PASSIVE), (RAI_NUMERICHOST, libc::AI_NUMERICHOST)] {
        if hints.ai_flags & flag != 0 {
            asked.ai_flags |= means;
        }
    }
    if hints.ai_flags & RAI_FAMILY != 0 {
        asked.ai_family = hints.ai_family;
    }
    let is_datagrams = hints.ai_qp_type == QPT_UD || hints.ai_port_space == PS_UDP;
    asked.ai_socktype = if is_datagrams { libc::SOCK_DGRAM } else { libc::SOCK_STREAM };
    asked
}

/// Returns the first address of a name; of the service alone if `node` is NULL. The error is the resolver's
/// own number.
fn resolve(
    node: *const c_char,
    service: *const c_char,
    hints: &RdmaAddrinfo,
) -> Result<(SocketAddr, *mut c_char), c_int> {
    let asked = resolver_hints(hints);
    let mut list = std::ptr::null_mut();
    // SAFETY: NULL or C strings of the program. The list is freed once, after its first address and name were
    // copied.
    unsafe {
        let failed = libc::getaddrinfo(node, service, &asked, &mut list);
        if failed != 0 {
            return Err(failed);
        }
        let first = &*list;
        let name = if first.ai_canonname.is_null() {
            std::ptr::null_mut()
        } else {
            libc::strdup(first.ai_canonname)
        };
        let address = address::parse(first.ai_addr);
        libc::freeaddrinfo(list);
        address.map(|address| (address, name)).map_err(|_| libc::EAI_FAMILY)
    }
}

/// Returns a port of all addresses if no name has to be resolved. perftest's server requires that this is
/// quick, because its client connects at the same time.
fn any_address(node: *const c_char, service: *const c_char, hints: &RdmaAddrinfo) -> Option<SocketAddr> {
    if !node.is_null() || service.is_null() || hints.ai_flags & RAI_PASSIVE == 0 {
        return None;
    }
    // SAFETY: a C string of the program.
    let port = unsafe { CStr::from_ptr(service) }.to_str().ok()?.parse().ok()?;
    match (hints.ai_flags & RAI_FAMILY, hints.ai_family) {
        (0, _) | (_, 0 | libc::AF_INET) => Some((Ipv4Addr::UNSPECIFIED, port).into()),
        (_, libc::AF_INET6) => Some((Ipv6Addr::UNSPECIFIED, port).into()),
        _ => None,
    }
}

/// Resolves a name and a service. The error is the resolver's own number.
pub(crate) fn found(
    node: *const c_char,
    service: *const c_char,
    hints: &RdmaAddrinfo,
) -> Result<Found, c_int> {
    let is_passive = hints.ai_flags & RAI_PASSIVE != 0;
    let mut source = None;
    let mut destination = None;
    let mut name = std::ptr::null_mut();
    if let Some(any) = any_address(node, service, hints) {
        source = Some(any);
    } else if !node.is_null() || !service.is_null() {
        let (address, canonical) = resolve(node, service, hints)?;
        name = canonical;
        *(if is_passive { &mut source } else { &mut destination }) = Some(address);
    }
    // Addresses that the program has given itself.
    if source.is_none() && hints.ai_src_len > 0 {
        source = address::parse(hints.ai_src_addr).ok();
    }
    if destination.is_none() && hints.ai_dst_len > 0 {
        destination = address::parse(hints.ai_dst_addr).ok();
    }
    let qp_type = match (hints.ai_qp_type, hints.ai_port_space) {
        (0, PS_UDP) => QPT_UD,
        (0, _) => QPT_RC,
        (given, _) => given,
    };
    let port_space = match (hints.ai_port_space, qp_type) {
        (0, QPT_UD) => PS_UDP,
        (0, _) => PS_TCP,
        (given, _) => given,
    };
    let any = source.or(destination);
    let family = any.map_or(0, |address| if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 });
    let len = |address: Option<SocketAddr>| address.map_or(0, address::len);
    Ok(Found {
        verbs: RdmaAddrinfo {
            ai_flags: if is_passive { RAI_PASSIVE } else { 0 },
            ai_family: family,
            ai_qp_type: qp_type,
            ai_port_space: port_space,
            ai_src_len: len(source),
            ai_dst_len: len(destination),
            ..ibverbs::zeroed()
        },
        source: source.map_or_else(ibverbs::zeroed, address::store),
        destination: destination.map_or_else(ibverbs::zeroed, address::store),
        name,
    })
}

/// Resolves a name and a service. Returns the number of a resolver's error unchanged.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const RdmaAddrinfo,
    out: *mut *mut RdmaAddrinfo,
) -> c_int {
    // SAFETY: NULL, or the program's.
    let (given, out) = unsafe { (hints.as_ref().copied(), out.as_mut()) };
    let Some(out) = out.filter(|_| given.is_some() || !node.is_null() || !service.is_null()) else {
        return errno::minus_one(Err(libc::EINVAL));
    };
    let hints = given.unwrap_or_else(ibverbs::zeroed);
    match found(node, service, &hints) {
        Err(number) => number,
        Ok(addrinfo) => {
            *out = give(addrinfo);
            0
        }
    }
}

/// Hands a result over to the program, which frees it.
pub(crate) fn give(addrinfo: Found) -> *mut RdmaAddrinfo {
    let addrinfo = Box::leak(Box::new(addrinfo));
    let source = &raw mut addrinfo.source;
    let destination = &raw mut addrinfo.destination;
    let verbs = &mut addrinfo.verbs;
    if verbs.ai_src_len > 0 {
        verbs.ai_src_addr = source.cast();
    }
    if verbs.ai_dst_len > 0 {
        verbs.ai_dst_addr = destination.cast();
    }
    let is_passive = verbs.ai_flags & RAI_PASSIVE != 0;
    *(if is_passive { &mut verbs.ai_src_canonname } else { &mut verbs.ai_dst_canonname }) = addrinfo.name;
    &raw mut addrinfo.verbs
}

/// Frees a result.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_freeaddrinfo(addrinfo: *mut RdmaAddrinfo) {
    if !addrinfo.is_null() {
        // SAFETY: the structure is the first field of a `Found`, which is freed once.
        drop(unsafe { Box::from_raw(addrinfo.cast::<Found>()) });
    }
}
