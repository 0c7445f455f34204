//! The errors of connecting two queue pairs.

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
    /// The arrival of a request.
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

/// The reason why a connection was not made. The message is one line with the solution.
#[derive(Debug)]
pub enum ConnectError {
    /// The address could not be resolved.
    Resolve(io::Error),
    /// No server listens at this address.
    Refused(SocketAddr),
    /// Another failure of TCP.
    Tcp(io::Error),
    /// The other side did not complete this step in time.
    Timeout(Stage),
    /// The server does not speak this protocol.
    NotRemora,
    /// The other side uses this other version of the protocol.
    Version(u16),
    /// The other side sent an invalid message.
    BadMessage,
    /// The other side hung up during this step.
    Closed(Stage),
    /// The other side refused with this text.
    Rejected(String),
    /// The other side has no capacity at the moment.
    Full(Full),
    /// The two ports are of kinds that cannot reach each other.
    OtherKind {
        /// The kind of this side's port.
        ours: PortKind,
        /// The kind of the other side's port.
        theirs: PortKind,
    },
    /// The services of the two queue pairs do not match.
    OtherService {
        /// The service of this side's queue pair.
        ours: remora_nic::Service,
        /// The service of the other side's queue pair.
        theirs: remora_nic::Service,
    },
    /// The address of the client's NIC is not the address that its TCP connection comes from.
    OtherSource {
        /// Address of the NIC in the client's message.
        claimed: IpAddr,
        /// Source address of the TCP connection.
        from: IpAddr,
    },
    /// The private data are too long; they have this many bytes.
    PrivateTooLong(usize),
    /// The other side refers to a link that no longer exists. Connecting once more creates a new link.
    StaleLink,
    /// The shared-memory link could not be created.
    Link(SetupError),
    /// The port could not add the peer.
    Attach(AttachError),
    /// The queue pair rejected the agreed attributes.
    Modify(ModifyFault),
    /// The NIC refused.
    Nic(NicError),
    /// The NIC daemon refused with this text.
    Daemon(String),
    /// The process was forked since the device, or the listener, was opened.
    Forked,
}

impl ConnectError {
    /// Returns whether the server may have been full, so that a later attempt may succeed. This includes a
    /// server that hung up during the set-up, because a busy server ends slow clients in that way.
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

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Resolve(error) => write!(f, "not an address of a server (host:port): {error}"),
            ConnectError::Refused(address) => {
                write!(f, "nobody listens at {address}: start the server first, or check address and port")
            }
            ConnectError::Tcp(error) => {
                write!(f, "set-up over TCP: {error}{}", remora_port::remedy(error))
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
            ConnectError::BadMessage => write!(f, "the other side sent an invalid set-up message"),
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
                write!(f, "the private data have {len} bytes, but at most {MAX_PRIVATE} are allowed")
            }
            ConnectError::StaleLink => {
                write!(
                    f,
                    "the other side refers to a shared-memory link that no longer exists: connect once more"
                )
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
    use rustix::io::Errno;

    #[test]
    fn too_few_descriptors_are_told_with_their_limit() {
        let words = |errno: Errno| ConnectError::Tcp(errno.into()).to_string();
        assert!(words(Errno::MFILE).contains("`ulimit -n`"));
        assert!(!words(Errno::CONNRESET).contains("ulimit"), "{}", words(Errno::CONNRESET));
    }
}
