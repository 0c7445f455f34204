//! The four system calls of a [`Socket`]: send or receive one datagram or a train of them. The rest of the
//! port is designed to make these calls rarely.

use super::address;
use super::socket::Socket;
use remora_wire::frame::{Endpoint, IpFields};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketAddrAny};
use std::mem::{MaybeUninit, size_of};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;

/// The result of one receive call: `len` bytes of datagrams of `segment` bytes each (the last may be
/// shorter), all from `source`. A single datagram has `segment == len`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Number of bytes written to the buffer.
    pub len: usize,
    /// Length in bytes of each datagram except the last.
    pub segment: usize,
    /// The sender of all the datagrams.
    pub source: Endpoint,
    /// IP header fields of the datagrams; `None` unless the kernel was asked for them.
    pub fields: Option<IpFields>,
    /// True if the datagram was longer than the buffer and was cut.
    pub truncated: bool,
}

/// A buffer for control messages, aligned as the kernel requires: up to three of one `int` each (`UDP_GRO`,
/// and two fields of the IP header), or one of `UDP_SEGMENT`.
#[repr(C, align(8))]
struct Control([u8; CONTROL_LEN]);

// SAFETY: CMSG_SPACE computes a length from a length and touches no memory.
const CONTROL_LEN: usize = 3 * unsafe { libc::CMSG_SPACE(size_of::<libc::c_int>() as libc::c_uint) } as usize;

/// The source address as the kernel writes it, of either family; the first field tells which.
#[repr(C)]
union Source {
    any: libc::sockaddr,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl Socket {
    /// Sends one datagram.
    ///
    /// # Errors
    /// `AGAIN` or `NOBUFS`: no space in the kernel now. `MSGSIZE`: longer than the path allows. Other
    /// errors of sendto(2).
    #[inline(always)]
    pub fn send_to(&self, bytes: &[u8], destination: &SocketAddrAny) -> Result<(), Errno> {
        rustix::net::sendto(&self.fd, bytes, SendFlags::DONTWAIT, destination).map(|_| ())
    }

    /// Receives one datagram into `buffer`; `None` if none is waiting. Must not be used on a socket that
    /// joins trains: a joined train would look like one datagram.
    ///
    /// # Errors
    /// The errno of recvfrom(2), except `AGAIN`. It may be an ICMP error caused by an earlier datagram.
    #[inline(always)]
    pub fn recv_from(&self, buffer: &mut [u8]) -> Result<Option<Arrival>, Errno> {
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        let capacity = buffer.len();
        let (_, len, sender) = match rustix::net::recvfrom(&self.fd, buffer, flags) {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        let source = sender.as_ref().and_then(address::of_kernel).ok_or(Errno::AFNOSUPPORT)?;
        Ok(Some(Arrival {
            len: len.min(capacity),
            segment: len.min(capacity),
            source,
            fields: None,
            truncated: len > capacity,
        }))
    }

    /// Returns whether no datagram is waiting to be read.
    pub fn is_empty(&self) -> bool {
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        let nothing: &mut [u8] = &mut [];
        matches!(rustix::net::recv(&self.fd, nothing, flags), Err(Errno::AGAIN))
    }

    /// Sends `bytes` as datagrams of `segment` bytes each (the last may be shorter) in one call
    /// (`UDP_SEGMENT`). The kernel accepts at most 64 datagrams and 65507 bytes in total.
    ///
    /// The errors of [`Socket::send_to`]; nothing was sent then. `IO`, or `INVAL` on some devices: trains
    /// cannot be cut. `INVAL` also if there are too many segments or, on older kernels, if they are too
    /// long for the path. Sending the segments one by one tells which.
    #[inline(always)]
    pub fn send_train(&self, bytes: &[u8], segment: u16, destination: &SocketAddrAny) -> Result<(), Errno> {
        self.send_with(bytes, destination, [libc::SOL_UDP, libc::UDP_SEGMENT], segment)
    }

    /// Sends one datagram with this traffic class, whatever class the socket is set to: other processes may
    /// hold the same socket and change its class.
    ///
    /// # Errors
    /// The errors of [`Socket::send_to`].
    pub fn send_classed(
        &self,
        bytes: &[u8],
        traffic_class: u8,
        destination: &SocketAddrAny,
    ) -> Result<(), Errno> {
        let option = match self.local() {
            SocketAddr::V4(_) => [libc::IPPROTO_IP, libc::IP_TOS],
            SocketAddr::V6(_) => [libc::IPPROTO_IPV6, libc::IPV6_TCLASS],
        };
        self.send_with(bytes, destination, option, libc::c_int::from(traffic_class))
    }

    /// Sends with one control message, whose value is at most as long as an `int`.
    #[inline(always)]
    fn send_with<T: Copy>(
        &self,
        bytes: &[u8],
        destination: &SocketAddrAny,
        [level, name]: [libc::c_int; 2],
        value: T,
    ) -> Result<(), Errno> {
        const { assert!(size_of::<T>() <= size_of::<libc::c_int>()) };
        let mut control = Control([0; CONTROL_LEN]);
        let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: a msghdr is plain old data for which all zeros is valid: no name, no buffers.
        let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        message.msg_name = destination.as_ptr().cast_mut().cast();
        message.msg_namelen = destination.addr_len();
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: computes a length from a length.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<T>() as libc::c_uint) } as _;
        // SAFETY: `control` is aligned and long enough for one header and an int, so the first header
        // exists and its data has space for the value. sendmsg only reads `bytes`, `destination`, `vector`
        // and `control`, which all outlive the call.
        let status = unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = level;
            (*header).cmsg_type = name;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<T>() as libc::c_uint) as _;
            libc::CMSG_DATA(header).cast::<T>().write_unaligned(value);
            message_call(libc::SYS_sendmsg, self.fd.as_raw_fd(), &raw mut message)
        };
        status.map(|_| ())
    }

    /// Receives one datagram, or a train that the kernel kept joined (`UDP_GRO`); `None` if nothing is
    /// waiting. A `buffer` of 65535 bytes is long enough for both.
    ///
    /// # Errors
    /// The errors of [`Socket::recv_from`].
    #[inline(always)]
    pub fn recv_train(&self, buffer: &mut [u8]) -> Result<Option<Arrival>, Errno> {
        let mut control = MaybeUninit::<Control>::uninit();
        let mut sender = MaybeUninit::<Source>::uninit();
        let mut vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: as in `send_with`; musl's msghdr has unnamed padding.
        let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        message.msg_name = sender.as_mut_ptr().cast();
        message.msg_namelen = size_of::<Source>() as libc::socklen_t;
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_LEN as _;
        // SAFETY: the kernel writes within `buffer`, `sender` and `control`, whose true sizes `message`
        // gives.
        let status = unsafe { message_call(libc::SYS_recvmsg, self.fd.as_raw_fd(), &raw mut message) };
        let len = match status {
            Ok(len) => len,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        // SAFETY: recvmsg succeeded, so it wrote `msg_namelen` bytes of address to `sender`.
        let source = unsafe { source(sender.as_ptr(), message.msg_namelen) }.ok_or(Errno::AFNOSUPPORT)?;
        // SAFETY: recvmsg succeeded, so `msg_controllen` bytes of `control`, which is still alive, are
        // written.
        let (joined, fields) = unsafe { read_control(&message) };
        let segment = joined.filter(|segment| *segment > 0).unwrap_or(len);
        let truncated = message.msg_flags & libc::MSG_TRUNC != 0;
        Ok(Some(Arrival { len, segment, source, fields, truncated }))
    }
}

/// Calls sendmsg(2) or recvmsg(2) without waiting, and returns the number of bytes. The system call is
/// inlined, because the C library's functions return after it ([`crate::return_stack`]).
///
/// # Safety
/// `message` refers to buffers that the call may read or, for recvmsg, write.
#[inline(always)]
unsafe fn message_call(number: libc::c_long, fd: RawFd, message: *mut libc::msghdr) -> Result<usize, Errno> {
    let flags = libc::MSG_DONTWAIT;
    #[cfg(all(target_arch = "x86_64", target_pointer_width = "64"))]
    let result = {
        let result: isize;
        // SAFETY: the kernel reads and writes what the caller allows, and changes `rcx` and `r11` beside the
        // result.
        unsafe {
            std::arch::asm!(
                "syscall",
                inlateout("rax") number as isize => result,
                in("rdi") fd as isize,
                in("rsi") message,
                in("rdx") flags as isize,
                lateout("rcx") _,
                lateout("r11") _,
                options(nostack, preserves_flags),
            );
        }
        usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result as i32))
    };
    #[cfg(not(all(target_arch = "x86_64", target_pointer_width = "64")))]
    let result = {
        // SAFETY: as above.
        let result = unsafe {
            match number {
                libc::SYS_sendmsg => libc::sendmsg(fd, message, flags),
                _ => libc::recvmsg(fd, message, flags),
            }
        };
        usize::try_from(result).map_err(|_| super::socket::last_errno())
    };
    result
}

/// Returns the endpoint that the kernel wrote; `None` if it is not an IP address.
///
/// # Safety
/// The first `len` bytes of `address` are initialised.
#[inline]
unsafe fn source(address: *const Source, len: libc::socklen_t) -> Option<Endpoint> {
    let len = len as usize;
    if len < size_of::<libc::sockaddr_in>() {
        return None;
    }
    // SAFETY: at least the bytes of a sockaddr_in are initialised, and each family starts with its number.
    let family = libc::c_int::from(unsafe { (*address).any.sa_family });
    match family {
        libc::AF_INET => {
            // SAFETY: a sockaddr_in's bytes are initialised, as checked above.
            let v4 = unsafe { (*address).v4 };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(Endpoint { address: ip.into(), udp_port: u16::from_be(v4.sin_port) })
        }
        libc::AF_INET6 if len >= size_of::<libc::sockaddr_in6>() => {
            // SAFETY: a sockaddr_in6's bytes are initialised, as just checked.
            let v6 = unsafe { (*address).v6 };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(Endpoint { address: ip.into(), udp_port: u16::from_be(v6.sin6_port) })
        }
        _ => None,
    }
}

/// Returns the length of the datagrams in a joined train (`None` for a single datagram), and the fields of
/// their IP header if the kernel was asked for them.
///
/// # Safety
/// `message` is as recvmsg left it and its control buffer is alive.
#[inline]
unsafe fn read_control(message: &libc::msghdr) -> (Option<usize>, Option<IpFields>) {
    let mut segment = None;
    let mut class = None;
    let mut hops = None;
    if message.msg_controllen == 0 || message.msg_flags & libc::MSG_CTRUNC != 0 {
        return (None, None);
    }
    // SAFETY: the kernel wrote `msg_controllen` bytes of well-formed control messages, so a header that
    // CMSG_FIRSTHDR or CMSG_NXTHDR finds is whole; IP_TOS's data is one byte, that of the others one int.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(ptr::from_ref(message));
        while !header.is_null() {
            let data = libc::CMSG_DATA(header);
            match ((*header).cmsg_level, (*header).cmsg_type) {
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    segment = usize::try_from(data.cast::<libc::c_int>().read_unaligned()).ok();
                }
                (libc::IPPROTO_IP, libc::IP_TOS) => class = Some(*data),
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    class = Some(data.cast::<libc::c_int>().read_unaligned() as u8);
                }
                (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                    hops = Some(data.cast::<libc::c_int>().read_unaligned() as u8);
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(ptr::from_ref(message), header);
        }
    }
    let fields = class.zip(hops).map(|(traffic_class, hop_limit)| IpFields { traffic_class, hop_limit });
    (segment, fields)
}
