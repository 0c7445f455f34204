//! The errors of connecting two queue pairs.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

use remora_nic::{ModifyFault, NicError};
use remora_port::shm::SetupError;

use super::full::Full;
use super::{MAX_PRIVATE, VERSION};
use crate::attach::AttachError;
use crate::port_kind::PortKind;

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
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address could not be resolved.
    #[error("not an address of a server (host:port): {0}")]
    Resolve(io::Error),
    /// No server listens at this address.
    #[error("nobody listens at {0}: start the server first, or check address and port")]
    Refused(SocketAddr),
    /// Another failure of TCP.
    #[error("set-up over TCP: {0}{advice}", advice = remora_port::remedy(.0))]
    Tcp(io::Error),
    /// The other side did not complete this step in time.
    #[error("no answer in time while {0}: the server may be overloaded, or a firewall drops packets")]
    Timeout(Stage),
    /// The server does not speak this protocol.
    #[error("the server there is not a Remora listener: check the port")]
    NotRemora,
    /// The other side uses this other version of the protocol.
    #[error(
        "the other side speaks version {0} of the set-up, this side {version}: update the older one",
        version = VERSION
    )]
    Version(u16),
    /// The other side sent an invalid message.
    #[error("the other side sent an invalid set-up message")]
    BadMessage,
    /// The other side hung up during this step.
    #[error("the other side hung up while {0}")]
    Closed(Stage),
    /// The other side refused with this text.
    #[error("the other side refused: {0}")]
    Rejected(String),
    /// The other side has no capacity at the moment.
    #[error("{0}: {advice}", advice = .0.remedy())]
    Full(Full),
    /// The two ports are of kinds that cannot reach each other.
    #[error("ports {ours} and {theirs} do not meet: open both NICs with shm, or both with udp or xdp")]
    OtherKind {
        /// The kind of this side's port.
        ours: PortKind,
        /// The kind of the other side's port.
        theirs: PortKind,
    },
    /// The services of the two queue pairs do not match.
    #[error(
        "the other side's queue pair is of service {theirs:?}, this one of {ours:?}: RC, UC and UD meet \
         their like, an XRC initiator an XRC target"
    )]
    OtherService {
        /// The service of this side's queue pair.
        ours: remora_nic::Service,
        /// The service of the other side's queue pair.
        theirs: remora_nic::Service,
    },
    /// The address of the client's NIC is not the address that its TCP connection comes from.
    #[error(
        "this connection comes from {from}, and the NIC that it names has the address {claimed}: open the \
         client's device on {from}, or name the server by an address that the client reaches from \
         {claimed}"
    )]
    OtherSource {
        /// Address of the NIC in the client's message.
        claimed: IpAddr,
        /// Source address of the TCP connection.
        from: IpAddr,
    },
    /// The private data are too long; they have this many bytes.
    #[error(
        "the private data have {0} bytes, but at most {max_private} are allowed",
        max_private = MAX_PRIVATE
    )]
    PrivateTooLong(usize),
    /// The other side refers to a link that no longer exists. Connecting once more creates a new link.
    #[error("the other side refers to a shared-memory link that no longer exists: connect once more")]
    StaleLink,
    /// The shared-memory link could not be created.
    #[error("{0}")]
    Link(SetupError),
    /// The port could not add the peer.
    #[error("{0}")]
    Attach(AttachError),
    /// The queue pair rejected the agreed attributes.
    #[error("bringing the queue pair up: {0}")]
    Modify(ModifyFault),
    /// The NIC refused.
    #[error("{0}")]
    Nic(NicError),
    /// The NIC daemon refused with this text.
    #[error("{0}")]
    Daemon(String),
    /// The process was forked since the device, or the listener, was opened.
    #[error("the process was forked since this was opened: open a device, and a listener, in the child")]
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
