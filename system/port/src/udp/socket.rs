//! A UDP socket with the settings that RoCE v2 needs: unconnected, `PMTUDISC_DO`, zero checksums accepted.

use super::address;
use super::options::{OpenError, Options};
use super::range;
use remora_wire::frame::{Endpoint, IpFields};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketFlags, SocketType, sockopt};
use std::mem::size_of;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::address::{Unfit, canonical, is_broadcast, settle, single, zoned};

/// Largest UDP payload over IPv4: 65535 less the IPv4 and UDP headers. The 20 bytes more that IPv6 could
/// carry are not used.
pub(super) const MAX_DATAGRAM: usize = 65_535 - 20 - 8;

/// An unconnected, non-blocking UDP socket as RoCE v2 needs it, and the raw calls that the port is made of.
/// Public so that a benchmark can measure the lower bound of [`super::UdpPort`]'s cost with the same
/// socket.
#[derive(Debug)]
pub struct Socket {
    pub(super) fd: OwnedFd,
    local: SocketAddr,
    sends_trains: bool,
    can_join: bool,
    joins: bool,
}

impl Socket {
    /// Opens a socket on one address of this machine; with port 0 the kernel chooses a port.
    ///
    /// The address and port are never shared: a port that is in use is an error, because two NICs on one
    /// port would each receive some of the other's frames.
    ///
    /// # Errors
    /// [`OpenError`]: the problem of the address or the machine, and its solution.
    pub fn open(address: SocketAddr, options: &Options) -> Result<Socket, OpenError> {
        Socket::bound(address, options, false)
    }

    /// Opens one more socket of a group that shares address and port ([`super::ReuseportGroup`]).
    pub(super) fn open_in_group(address: SocketAddr, options: &Options) -> Result<Socket, OpenError> {
        Socket::bound(address, options, true)
    }

    /// Opens a socket that only sends, from the address of `local` and a port of the kernel's choice.
    pub(super) fn sending(local: SocketAddr, options: &Options) -> Result<Socket, OpenError> {
        let mut address = local;
        address.set_port(0);
        let socket = Socket::open(address, &Options { receive_buffer: 0, ..*options })?;
        range::refuse_all(&socket).map_err(|errno| OpenError::Os("SO_ATTACH_FILTER", errno))?;
        Ok(socket)
    }

    fn bound(address: SocketAddr, options: &Options, shares: bool) -> Result<Socket, OpenError> {
        let address = canonical(address);
        single(address.ip())?;
        zoned(address)?;
        let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = rustix::net::socket_with(family, SocketType::DGRAM, flags, None).map_err(
            |errno| match errno {
                Errno::AFNOSUPPORT => OpenError::NoFamily(address),
                other => OpenError::Os("socket", other),
            },
        )?;
        configure(&fd, address.is_ipv6(), options)?;
        if shares {
            sockopt::set_socket_reuseport(&fd, true).map_err(|errno| OpenError::Os("SO_REUSEPORT", errno))?;
        }
        match rustix::net::bind(&fd, &address) {
            // Duplicate address detection may just have ended.
            Err(Errno::ADDRNOTAVAIL) if settle(address.ip(), address::scope(address))? => {
                rustix::net::bind(&fd, &address)
            }
            done => done,
        }
        .map_err(|errno| OpenError::of_bind(address, errno))?;
        // The kernel lets a socket bind a broadcast address, although no packet may have it as its source.
        if is_broadcast(address.ip()) {
            return Err(Unfit::Broadcast(address.ip()).into());
        }
        let local = rustix::net::getsockname(&fd).map_err(|errno| OpenError::Os("getsockname", errno))?;
        let local = SocketAddr::try_from(local).map_err(|errno| OpenError::Os("getsockname", errno))?;
        Ok(Socket::of(fd, local, options))
    }

    /// Wraps a bound socket that was handed in. Joining of trains is turned off.
    pub(super) fn handed_in(fd: OwnedFd, local: SocketAddr, options: &Options) -> Socket {
        Socket::of(fd, local, options)
    }

    fn of(fd: OwnedFd, local: SocketAddr, options: &Options) -> Socket {
        // A kernel that does not know the options (before 4.18 and 5.0; gVisor) refuses them here, once.
        let sends_trains = options.trains && set(&fd, libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok();
        let can_join = options.trains && set(&fd, libc::SOL_UDP, libc::UDP_GRO, 0).is_ok();
        Socket { fd, local, sends_trains, can_join, joins: false }
    }

    /// Wraps a socket that is bound to a multicast group.
    pub(super) fn of_group(fd: OwnedFd, group: SocketAddr) -> Socket {
        Socket { fd, local: group, sends_trains: false, can_join: false, joins: false }
    }

    /// Returns the local address and port of the socket.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns the local address as a RoCE endpoint.
    pub fn endpoint(&self) -> Endpoint {
        address::endpoint(self.local)
    }

    /// Returns whether the kernel can cut a train into datagrams ([`Socket::send_train`]).
    pub fn sends_trains(&self) -> bool {
        self.sends_trains
    }

    /// Returns whether the kernel can keep received trains joined ([`Socket::join`]).
    pub fn can_join(&self) -> bool {
        self.can_join
    }

    /// Returns whether datagrams may arrive joined. If so, only [`Socket::recv_train`] reads them
    /// correctly.
    pub fn joins(&self) -> bool {
        self.joins
    }

    /// Makes the kernel keep received trains joined (`UDP_GRO`), or cut them. A new socket does not join.
    ///
    /// Joining must be turned off only while nothing waits to be read: a train that was joined before would
    /// be read as one datagram.
    ///
    /// # Errors
    /// The errno of setsockopt(2) if the kernel cannot join trains. Nothing has changed then.
    pub fn join(&mut self, on: bool) -> Result<(), Errno> {
        set(&self.fd, libc::SOL_UDP, libc::UDP_GRO, on.into())?;
        self.joins = on;
        Ok(())
    }

    /// Gives up joining: it is not tried again.
    pub(super) fn never_join(&mut self) {
        self.can_join = false;
    }

    /// Returns the size in bytes of the kernel's receive buffer (`SO_RCVBUF`), by the kernel's own
    /// accounting; 0 if the kernel does not report it.
    pub fn receive_buffer(&self) -> usize {
        sockopt::socket_recv_buffer_size(&self.fd).unwrap_or(0)
    }

    /// Returns the number of received datagrams that were dropped since the socket was opened, mostly
    /// because its buffer was full. `None` if the kernel does not report it (before 4.12).
    pub fn kernel_drops(&self) -> Option<u32> {
        // The index follows `SK_MEMINFO_*` of the kernel's sock_diag.h: the drops are the ninth word.
        const DROPS: usize = 8;
        let mut words = [0u32; 9];
        let mut len = size_of::<[u32; 9]>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to `words` and how many to `len`; both live here.
        let status = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                words.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        (status == 0 && len as usize == size_of::<[u32; 9]>()).then(|| words[DROPS])
    }

    /// Sets the IP header fields of all datagrams that are sent from now on. A hop limit of 0 is not
    /// possible and keeps the former value.
    ///
    /// # Errors
    /// The errno of setsockopt(2).
    pub fn mark(&self, fields: IpFields) -> Result<(), Errno> {
        let class = fields.traffic_class;
        let hops = fields.hop_limit;
        if self.local.is_ipv6() {
            sockopt::set_ipv6_tclass(&self.fd, class.into())?;
            return if hops == 0 { Ok(()) } else { sockopt::set_ipv6_unicast_hops(&self.fd, Some(hops)) };
        }
        sockopt::set_ip_tos(&self.fd, class)?;
        if hops == 0 { Ok(()) } else { sockopt::set_ip_ttl(&self.fd, hops.into()) }
    }

    /// Makes the kernel report the IP header fields of each received datagram ([`Socket::recv_train`]).
    ///
    /// # Errors
    /// The errno of setsockopt(2).
    pub fn show_ip_fields(&self) -> Result<(), Errno> {
        if self.local.is_ipv6() {
            set(&self.fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
            return set(&self.fd, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 1);
        }
        set(&self.fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
        set(&self.fd, libc::IPPROTO_IP, libc::IP_RECVTTL, 1)
    }

    /// Converts an address to the kernel's format, for [`Socket::send_to`].
    pub fn destination(&self, address: SocketAddr) -> SocketAddrAny {
        SocketAddrAny::from(address)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The option for automatic flow labels (the kernel's in6.h), which libc does not define everywhere.
const IPV6_AUTOFLOWLABEL: libc::c_int = 70;

/// Sets all options except those for trains, which the kernel may lack.
fn configure(fd: &OwnedFd, v6: bool, options: &Options) -> Result<(), OpenError> {
    let failed = |call| move |errno| OpenError::Os(call, errno);
    if v6 {
        sockopt::set_ipv6_v6only(fd, true).map_err(failed("IPV6_V6ONLY"))?;
        // Without it the kernel drops the zero checksums that Soft-RoCE and hardware send.
        set(fd, libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1).map_err(failed("UDP_NO_CHECK6_RX"))?;
        set(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)
            .map_err(failed("IPV6_MTU_DISCOVER"))?;
        sockopt::set_ipv6_unicast_hops(fd, Some(options.ttl)).map_err(failed("IPV6_UNICAST_HOPS"))?;
        sockopt::set_ipv6_tclass(fd, options.traffic_class.into()).map_err(failed("IPV6_TCLASS"))?;
        // The NIC's flow label is 0. Kernels without the option (before 4.0) write no flow label by
        // themselves.
        let _ = set(fd, libc::IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, 0);
    } else {
        set(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)
            .map_err(failed("IP_MTU_DISCOVER"))?;
        sockopt::set_ip_ttl(fd, options.ttl.into()).map_err(failed("IP_TTL"))?;
        sockopt::set_ip_tos(fd, options.traffic_class).map_err(failed("IP_TOS"))?;
    }
    // The privileged option may exceed the system's limit; the plain one is clamped to the limit.
    sockopt::set_socket_recv_buffer_size_force(fd, options.receive_buffer)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(fd, options.receive_buffer))
        .map_err(failed("SO_RCVBUF"))?;
    sockopt::set_socket_send_buffer_size_force(fd, options.send_buffer)
        .or_else(|_| sockopt::set_socket_send_buffer_size(fd, options.send_buffer))
        .map_err(failed("SO_SNDBUF"))
}

/// Makes a TCP socket connect from this address. Its port is chosen when it connects, so that one port can
/// serve connections to several servers.
///
/// # Errors
/// The errno of setsockopt(2), or of bind(2) if the address is not one of this host.
pub fn bind_source(socket: &impl AsFd, source: SocketAddr) -> Result<(), Errno> {
    set(socket.as_fd(), libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)?;
    rustix::net::bind(socket, &source)
}

/// Sets an option whose value is one `int`.
pub(super) fn set(
    fd: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> Result<(), Errno> {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `value` lives through the call and `len` is its size.
    let status =
        unsafe { libc::setsockopt(fd.as_fd().as_raw_fd(), level, name, (&raw const value).cast(), len) };
    if status == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Returns the errno of the system call that has just failed.
pub(crate) fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
