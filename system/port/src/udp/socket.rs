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

/// Largest UDP payload over IPv4: 65535 less the IPv4 and UDP headers. IPv6 could carry 20 more; nobody needs
/// them.
pub(super) const MAX_DATAGRAM: usize = 65_535 - 20 - 8;

/// An unconnected, non-blocking UDP socket as RoCE v2 needs it, and the raw calls a port is made of. It is
/// public so that a benchmark can measure the floor under [`super::UdpPort`] with the very same socket.
#[derive(Debug)]
pub struct Socket {
    pub(super) fd: OwnedFd,
    local: SocketAddr,
    sends_trains: bool,
    can_join: bool,
    joins: bool,
}

impl Socket {
    /// Opens a socket on one address of this machine; port 0 lets the kernel choose.
    ///
    /// Neither address nor port is ever shared. A taken port is an error, because two NICs on one port would
    /// each get some of the other's frames.
    ///
    /// # Errors
    /// [`OpenError`]: the fault of the address or the machine, and its mend.
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
            // The address may be usable in a moment.
            Err(Errno::ADDRNOTAVAIL) if settle(address.ip(), address::scope(address))? => {
                rustix::net::bind(&fd, &address)
            }
            done => done,
        }
        .map_err(|errno| OpenError::of_bind(address, errno))?;
        // The kernel lets sockets bind it, though no packet can bear it as its source.
        if is_broadcast(address.ip()) {
            return Err(Unfit::Broadcast(address.ip()).into());
        }
        let local = rustix::net::getsockname(&fd).map_err(|errno| OpenError::Os("getsockname", errno))?;
        let local = SocketAddr::try_from(local).map_err(|errno| OpenError::Os("getsockname", errno))?;
        Ok(Socket::of(fd, local, options))
    }

    /// Wraps a bound socket that was handed in. It joins no trains from now on.
    pub(super) fn handed_in(fd: OwnedFd, local: SocketAddr, options: &Options) -> Socket {
        Socket::of(fd, local, options)
    }

    fn of(fd: OwnedFd, local: SocketAddr, options: &Options) -> Socket {
        // A kernel that does not know the options (before 4.18 and 5.0, gVisor) refuses them here, once.
        let sends_trains = options.trains && set(&fd, libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok();
        let can_join = options.trains && set(&fd, libc::SOL_UDP, libc::UDP_GRO, 0).is_ok();
        Socket { fd, local, sends_trains, can_join, joins: false }
    }

    /// Wraps a socket that is bound to a multicast group.
    pub(super) fn of_group(fd: OwnedFd, group: SocketAddr) -> Socket {
        Socket { fd, local: group, sends_trains: false, can_join: false, joins: false }
    }

    /// The address and port the socket has.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The same address as a RoCE endpoint.
    pub fn endpoint(&self) -> Endpoint {
        address::endpoint(self.local)
    }

    /// Can the kernel cut a train into datagrams ([`Socket::send_train`])?
    pub fn sends_trains(&self) -> bool {
        self.sends_trains
    }

    /// Can the kernel keep a train joined on its way in ([`Socket::join`])?
    pub fn can_join(&self) -> bool {
        self.can_join
    }

    /// May datagrams arrive joined? If so, only [`Socket::recv_train`] reads them correctly.
    pub fn joins(&self) -> bool {
        self.joins
    }

    /// Asks the kernel to keep trains joined (`UDP_GRO`), or to cut them again. A new socket does not join.
    ///
    /// Cutting again is for a socket in which nothing waits: what was joined before would be read as one
    /// datagram.
    ///
    /// # Errors
    /// The errno of setsockopt(2): the kernel cannot join. Nothing has changed then.
    pub fn join(&mut self, on: bool) -> Result<(), Errno> {
        set(&self.fd, libc::SOL_UDP, libc::UDP_GRO, on.into())?;
        self.joins = on;
        Ok(())
    }

    /// Gives joining up: it is not tried again.
    pub(super) fn never_join(&mut self) {
        self.can_join = false;
    }

    /// Size in bytes of the kernel's receive buffer (`SO_RCVBUF`), by the kernel's own count; 0 if it does
    /// not report it.
    pub fn receive_buffer(&self) -> usize {
        sockopt::socket_recv_buffer_size(&self.fd).unwrap_or(0)
    }

    /// Datagrams that came and were dropped since the socket was opened, mostly because its buffer was full.
    /// `None`: the kernel does not report it (before 4.12).
    pub fn kernel_drops(&self) -> Option<u32> {
        // The kernel's order (`SK_MEMINFO_*` in its sock_diag.h): the drops are the ninth word.
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

    /// Largest IP packet in bytes that the route to `to` takes: its path MTU, as the kernel knows it.
    ///
    /// # Errors
    /// The errno of looking the route up: there may be none.
    pub fn path_mtu(&self, to: SocketAddr) -> Result<usize, Errno> {
        // Only a connected socket can be asked, and this one must never be: so ask another one.
        let family = if self.local.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
        let probe = rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        rustix::net::bind(&probe, &SocketAddr::new(self.local.ip(), 0))?;
        rustix::net::connect(&probe, &to)?;
        let (level, name) = match self.local {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
        };
        get(&probe, level, name).map(|mtu| usize::try_from(mtu).unwrap_or(0))
    }

    /// Chooses the fields of the IP header of all datagrams that are sent from now on. A hop limit of 0 is
    /// not possible and leaves the former one.
    ///
    /// # Errors
    /// The errno of setsockopt(2).
    pub fn mark(&self, fields: IpFields) -> Result<(), Errno> {
        let (class, hops) = (fields.traffic_class, fields.hop_limit);
        if self.local.is_ipv6() {
            sockopt::set_ipv6_tclass(&self.fd, class.into())?;
            return if hops == 0 { Ok(()) } else { sockopt::set_ipv6_unicast_hops(&self.fd, Some(hops)) };
        }
        sockopt::set_ip_tos(&self.fd, class)?;
        if hops == 0 { Ok(()) } else { sockopt::set_ip_ttl(&self.fd, hops.into()) }
    }

    /// Asks the kernel to say with which fields of the IP header each datagram came
    /// ([`Socket::recv_train`]).
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

    /// The address as the kernel reads it, for [`Socket::send_to`].
    pub fn destination(&self, to: SocketAddr) -> SocketAddrAny {
        SocketAddrAny::from(to)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The option by which the kernel makes up flow labels, where libc does not name it (the kernel's in6.h).
const IPV6_AUTOFLOWLABEL: libc::c_int = 70;

/// All options but the trains', which the kernel may lack.
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
        // The NIC's flow label is 0. Kernels without the option (before 4.0) write none by themselves.
        let _ = set(fd, libc::IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, 0);
    } else {
        set(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)
            .map_err(failed("IP_MTU_DISCOVER"))?;
        sockopt::set_ip_ttl(fd, options.ttl.into()).map_err(failed("IP_TTL"))?;
        sockopt::set_ip_tos(fd, options.traffic_class).map_err(failed("IP_TOS"))?;
    }
    // The privileged form may pass the system's limit; the plain one takes what the limit allows.
    sockopt::set_socket_recv_buffer_size_force(fd, options.receive_buffer)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(fd, options.receive_buffer))
        .map_err(failed("SO_RCVBUF"))?;
    sockopt::set_socket_send_buffer_size_force(fd, options.send_buffer)
        .or_else(|_| sockopt::set_socket_send_buffer_size(fd, options.send_buffer))
        .map_err(failed("SO_SNDBUF"))
}

/// Makes a TCP socket connect from this address. Its port is chosen as it connects, so that one port serves
/// connections to several servers.
///
/// # Errors
/// The errno of setsockopt(2) or bind(2): the address is not one of this host.
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

/// Reads an option whose value is one `int`.
fn get(fd: &OwnedFd, level: libc::c_int, name: libc::c_int) -> Result<libc::c_int, Errno> {
    let mut value: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `value` and how many to `len`; both live here.
    let status =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len) };
    if status == 0 { Ok(value) } else { Err(last_errno()) }
}

/// The errno of the call that just failed.
pub(crate) fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
