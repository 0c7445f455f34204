//! The options of a port's socket, and the errors of opening it.

use rustix::io::Errno;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::address::{Unfit, loopback};

/// The options of a port's socket.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// IPv4 time to live, or IPv6 hop limit. Not covered by the ICRC.
    pub ttl: u8,
    /// IPv4 type of service, or IPv6 traffic class: DSCP in the upper 6 bits. Not covered by the ICRC.
    pub traffic_class: u8,
    /// Requested size in bytes of the receive buffer (`SO_RCVBUF`), as the kernel accounts for frames (two
    /// to three times their own bytes). An unprivileged process gets at most `net.core.rmem_max`.
    pub receive_buffer: usize,
    /// Requested size in bytes of the send buffer (`SO_SNDBUF`). An unprivileged process gets at most
    /// `net.core.wmem_max`.
    pub send_buffer: usize,
    /// Permission to use the kernel's trains (`UDP_SEGMENT`, `UDP_GRO`) if it has them.
    pub trains: bool,
    /// Maximum number of peers.
    pub max_peers: u32,
    /// Maximum number of multicast groups that the port is a member of; each takes a descriptor.
    pub max_groups: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            ttl: 64,
            traffic_class: 0,
            receive_buffer: 32 << 20,
            send_buffer: 8 << 20,
            trains: true,
            max_peers: 65_536,
            max_groups: 64,
        }
    }
}

/// The reason why a port could not be opened. The message is one line with the problem and its solution.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The UDP port of this address is in use.
    Taken(SocketAddr),
    /// No interface of this machine (or network namespace) has this address.
    NotLocal {
        /// The requested address and UDP port.
        at: SocketAddr,
        /// A loopback address of this machine, as a suggestion.
        loopback: Option<IpAddr>,
    },
    /// An address that a NIC cannot have.
    Unfit(Unfit),
    /// This UDP port is reserved to privileged processes.
    Forbidden(SocketAddr),
    /// The kernel lacks IPv6, or IPv4.
    NoFamily(SocketAddr),
    /// Another failure: the system call and its errno.
    Os(&'static str, Errno),
}

impl OpenError {
    /// Converts the error of a failed `bind` to `address`.
    pub(super) fn of_bind(address: SocketAddr, errno: Errno) -> Self {
        match errno {
            Errno::ADDRINUSE => OpenError::Taken(address),
            // NODEV: no interface has this index.
            Errno::ADDRNOTAVAIL | Errno::NODEV => OpenError::NotLocal { at: address, loopback: loopback() },
            Errno::ACCESS | Errno::PERM => OpenError::Forbidden(address),
            other => OpenError::Os("bind", other),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            OpenError::Taken(address) => write!(
                f,
                "UDP port {port} on {ip} is taken: stop the program that has it (`ss -ulpn 'sport = :{port}'` names \
                 it), or choose another port for this NIC, such as {other}",
                port = address.port(),
                ip = address.ip(),
                other = SocketAddr::new(address.ip(), address.port().checked_add(1).unwrap_or(4792)),
            ),
            OpenError::NotLocal { at: address, loopback } => {
                write!(
                    f,
                    "{} is not an address of this machine: choose one that `ip address` lists",
                    address.ip()
                )?;
                match loopback {
                    Some(other) if other != address.ip() => write!(f, ", or {other}"),
                    None if address.ip().is_loopback() => write!(f, ", or run `ip link set lo up` as root"),
                    _ => Ok(()),
                }
            }
            OpenError::Unfit(why) => why.fmt(f),
            OpenError::Forbidden(address) => write!(
                f,
                "UDP port {} is reserved to root here: choose one from 1024 up (RoCE's own is 4791)",
                address.port()
            ),
            OpenError::NoFamily(address) => write!(
                f,
                "this machine has no {family}: choose an {other} address",
                family = if address.is_ipv6() { "IPv6" } else { "IPv4" },
                other = if address.is_ipv6() { "IPv4" } else { "IPv6" },
            ),
            OpenError::Os(call, errno) => {
                let advice = crate::remedy(&errno.into());
                write!(f, "opening the UDP socket failed in {call}: {errno}{advice}")
            }
        }
    }
}

impl std::error::Error for OpenError {}

impl From<Unfit> for OpenError {
    fn from(why: Unfit) -> OpenError {
        OpenError::Unfit(why)
    }
}
