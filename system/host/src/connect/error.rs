//! Why two queue pairs were not connected.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

use remora_nic::{ModifyFault, NicError};
use remora_port::shm::SetupError;

use super::full::{Capacity, Full};
use super::{MAX_PRIVATE, VERSION};
use crate::attach::{AttachError, PortKind};

/// The step of the set-up that was waited for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The TCP connection.
    Connecting,
    /// The server's answer.
    Answer,
    /// The shared-memory link.
    Link,
    /// The client's READY.
    Ready,
    /// The server's GO.
    Go,
    /// A request to come.
    Request,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Connecting => "connecting",
            Stage::Answer => "waiting for the server's answer",
            Stage::Link => "making the shared-memory link",
            Stage::Ready => "waiting for the client to be ready",
            Stage::Go => "waiting for the server to be ready",
            Stage::Request => "waiting for a request",
        })
    }
}

/// Why a connection was not made: one line with the mend.
#[derive(Debug)]
pub enum ConnectError {
    /// The address is no address.
    Resolve(io::Error),
    /// Nobody listens there.
    Refused(SocketAddr),
    /// TCP failed otherwise.
    Tcp(io::Error),
    /// The other side did not do its part in time.
    Timeout(Stage),
    /// The server there does not speak this protocol.
    NotRemora,
    /// The other side has this other version of the protocol.
    Version(u16),
    /// The other side sent a message that makes no sense.
    BadMessage,
    /// The other side hung up.
    Closed(Stage),
    /// The other side refused; its text.
    Rejected(String),
    /// The other side is full at the moment.
    Full(Full),
    /// The ports are of kinds that do not reach each other.
    OtherKind {
        /// The kind of this side's port.
        ours: PortKind,
        /// The kind of the other side's port.
        theirs: PortKind,
    },
    /// The queue pairs are of services that do not go together.
    OtherService {
        /// The service of this side's queue pair.
        ours: remora_nic::Service,
        /// The service of the other side's queue pair.
        theirs: remora_nic::Service,
    },
    /// The NIC that a client names is not of the host that its TCP connection comes from.
    OtherSource {
        /// The address of the NIC.
        claimed: IpAddr,
        /// The source of the TCP connection.
        from: IpAddr,
    },
    /// The private data has this many bytes, which is too long.
    PrivateTooLong(usize),
    /// The other side names a link that is gone; connecting again makes a new one.
    StaleLink,
    /// The link over shared memory was not made.
    Link(SetupError),
    /// The port does not take the peer.
    Attach(AttachError),
    /// The queue pair does not take the agreed attributes.
    Modify(ModifyFault),
    /// The NIC refused.
    Nic(NicError),
    /// The NIC daemon refused; the daemon's text.
    Daemon(String),
    /// The process was forked since the device, or the listener, was opened.
    Forked,
}

impl ConnectError {
    /// Was the server full, so that a later attempt may succeed? True also for a server that hung up in the
    /// middle: so it ends a client that takes long while others wait.
    pub fn is_for_now(&self) -> bool {
        match self {
            ConnectError::Full(_) | ConnectError::Closed(_) => true,
            ConnectError::Link(SetupError::Os(errno)) => *errno == rustix::io::Errno::CONNREFUSED,
            _ => false,
        }
    }

    pub(super) fn tcp(address: SocketAddr, error: io::Error) -> ConnectError {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => ConnectError::Refused(address),
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => ConnectError::Timeout(Stage::Connecting),
            _ => ConnectError::Tcp(error),
        }
    }
}

/// ENFILE and EMFILE, by Linux's numbers: no descriptor is left in the system, or in the process.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Resolve(error) => write!(f, "not an address of a server (host:port): {error}"),
            ConnectError::Refused(address) => {
                write!(f, "nobody listens at {address}: start the server first, or check address and port")
            }
            ConnectError::Tcp(error) => {
                let few = matches!(error.raw_os_error(), Some(EMFILE | ENFILE));
                let mend = if few { " (descriptors are limited by `ulimit -n`)" } else { "" };
                write!(f, "set-up over TCP: {error}{mend}")
            }
            ConnectError::Timeout(stage) => write!(
                f,
                "no answer in time while {stage}: the server may be overloaded, or a firewall drops packets"
            ),
            ConnectError::NotRemora => {
                write!(f, "the server there is not a Remora listener: check the port")
            }
            ConnectError::Version(theirs) => {
                write!(
                    f,
                    "the other side speaks version {theirs} of the set-up, this side {VERSION}: update the older one"
                )
            }
            ConnectError::BadMessage => write!(f, "the other side sent a set-up message that makes no sense"),
            ConnectError::Closed(stage) => write!(f, "the other side hung up while {stage}"),
            ConnectError::Rejected(words) => write!(f, "the other side refused: {words}"),
            ConnectError::Full(full) if full.capacity == Capacity::Clients => {
                write!(f, "{full}: try again when one has ended, or start the server with more (--clients)")
            }
            ConnectError::Full(full) => write!(f, "{full}: try again"),
            ConnectError::OtherService { ours, theirs } => write!(
                f,
                "the other side's queue pair is of service {theirs:?}, this one of {ours:?}: RC, UC and UD meet their like, \
                 an XRC initiator an XRC target"
            ),
            ConnectError::OtherKind { ours, theirs } => {
                write!(
                    f,
                    "ports {ours} and {theirs} do not meet: open both NICs with shm, or both with udp or xdp"
                )
            }
            ConnectError::OtherSource { claimed, from } => write!(
                f,
                "this connection comes from {from}, and the NIC that it names has the address {claimed}: open the \
                 client's device on {from}, or name the server by an address that the client reaches from {claimed}"
            ),
            ConnectError::PrivateTooLong(len) => {
                write!(f, "{len} bytes of private data; {MAX_PRIVATE} are allowed")
            }
            ConnectError::StaleLink => {
                write!(f, "the link that the other side remembers is gone: connect again")
            }
            ConnectError::Link(error) => error.fmt(f),
            ConnectError::Attach(error) => error.fmt(f),
            ConnectError::Modify(fault) => write!(f, "bringing the queue pair up: {fault}"),
            ConnectError::Nic(error) => error.fmt(f),
            ConnectError::Daemon(words) => f.write_str(words),
            ConnectError::Forked => f.write_str(
                "the process was forked since this was opened: open a device, and a listener, in the child",
            ),
        }
    }
}

impl std::error::Error for ConnectError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_descriptors_are_told_with_their_limit() {
        let words = |errno| ConnectError::Tcp(io::Error::from_raw_os_error(errno)).to_string();
        assert!(words(EMFILE).contains("`ulimit -n`") && words(ENFILE).contains("`ulimit -n`"));
        assert!(!words(1).contains("ulimit"), "{}", words(1));
    }
}
