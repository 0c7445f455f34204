//! Names and services as addresses (`rdma_getaddrinfo`), by the C library's resolver.

use remora_abi::cma::{PS_TCP, PS_UDP, RAI_FAMILY, RAI_NUMERICHOST, RAI_PASSIVE, RdmaAddrinfo};
use remora_abi::queue_pair::{QPT_RC, QPT_UD};
use std::ffi::{CStr, c_char, c_int};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::{address, errno, ibverbs};

/// A result, and what it points to.
#[repr(C)]
pub struct Found {
    verbs: RdmaAddrinfo,
    source: libc::sockaddr_storage,
    destination: libc::sockaddr_storage,
    /// The name of the host, as the resolver has it.
    name: *mut c_char,
}

// SAFETY: the name is its own, and its other pointers are set when it has its place.
unsafe impl Send for Found {}

impl Clone for Found {
    fn clone(&self) -> Found {
        // SAFETY: a C string of its own, if there is one.
        let name = if self.name.is_null() { self.name } else { unsafe { libc::strdup(self.name) } };
        Found { name, ..*self }
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        // SAFETY: NULL, or the C library's, and nobody else's.
        unsafe { libc::free(self.name.cast()) };
    }
}

/// What the resolver is asked for.
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

/// The first address of a name; NULL: of a service alone. The error is the resolver's own number.
fn resolve(
    node: *const c_char,
    service: *const c_char,
    hints: &RdmaAddrinfo,
) -> Result<(SocketAddr, *mut c_char), c_int> {
    let asked = resolver_hints(hints);
    let mut list = std::ptr::null_mut();
    // SAFETY: NULL or C strings of the program; the list is freed once, after its first address and name have
    // been copied.
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
        let at = address::parse(first.ai_addr);
        libc::freeaddrinfo(list);
        at.map(|at| (at, name)).map_err(|_| libc::EAI_FAMILY)
    }
}

/// A port of all addresses, where no name is to be resolved. perftest's server counts on it that this takes
/// no time: its client connects meanwhile.
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

/// Finds the addresses of a name and a service. The error is the resolver's own number.
pub fn found(node: *const c_char, service: *const c_char, hints: &RdmaAddrinfo) -> Result<Found, c_int> {
    let is_passive = hints.ai_flags & RAI_PASSIVE != 0;
    let (mut source, mut destination) = (None, None);
    let mut name = std::ptr::null_mut();
    if let Some(any) = any_address(node, service, hints) {
        source = Some(any);
    } else if !node.is_null() || !service.is_null() {
        let (at, canonical) = resolve(node, service, hints)?;
        name = canonical;
        *(if is_passive { &mut source } else { &mut destination }) = Some(at);
    }
    // What the program knows already.
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
    let family = any.map_or(0, |at| if at.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 });
    let len = |at: Option<SocketAddr>| at.map_or(0, address::len);
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

/// Finds the addresses of a name and a service. The number of the resolver's error is returned as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_getaddrinfo(
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
        Ok(found) => {
            *out = give(found);
            0
        }
    }
}

/// Hands a result to the program, which frees it.
pub fn give(found: Found) -> *mut RdmaAddrinfo {
    let found = Box::leak(Box::new(found));
    let (source, destination) = (&raw mut found.source, &raw mut found.destination);
    let verbs = &mut found.verbs;
    if verbs.ai_src_len > 0 {
        verbs.ai_src_addr = source.cast();
    }
    if verbs.ai_dst_len > 0 {
        verbs.ai_dst_addr = destination.cast();
    }
    let is_passive = verbs.ai_flags & RAI_PASSIVE != 0;
    *(if is_passive { &mut verbs.ai_src_canonname } else { &mut verbs.ai_dst_canonname }) = found.name;
    &raw mut found.verbs
}

/// Frees what was found.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_freeaddrinfo(found: *mut RdmaAddrinfo) {
    if !found.is_null() {
        // SAFETY: what was found begins with this, and is freed once.
        drop(unsafe { Box::from_raw(found.cast::<Found>()) });
    }
}
