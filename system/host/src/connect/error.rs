//! Why two queue pairs did not come together.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use remora_nic::{ModifyFault, NicError};
use remora_port::shm::SetupError;

use super::full::{Full, Places};
use super::message::{MAX_PRIVATE, Stage, VERSION};
use crate::attach::{AttachError, PortKind};

/// Why a connection was not made: one line that says what to do.
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
    /// What answers there does not speak this protocol.
    NotRemora,
    /// The other side speaks this version of the protocol.
    Version(u16),
    /// The other side said something that makes no sense.
    BadMessage,
    /// The other side hung up.
    Closed(Stage),
    /// The other side refused, in its own words.
    Rejected(String),
    /// The other side has no place at the moment.
    Full(Full),
    /// The ports cannot meet.
    OtherKind {
        /// Our port.
        ours: PortKind,
        /// The other side's port.
        theirs: PortKind,
    },
    /// The queue pairs are of services that do not go together.
    OtherService {
        /// Our service.
        ours: remora_nic::Service,
        /// The other side's service.
        theirs: remora_nic::Service,
    },
    /// So many bytes of private data are too many.
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
    /// The NIC daemon's words.
    Daemon(String),
    /// The process was forked since the device, or the listener, was opened.
    Forked,
}

impl ConnectError {
    /// Was there no place, and may there be one in a moment? Also of a server that hung up in the middle: so it ends who
    /// takes long where others wait for a place.
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

/// The system has no more descriptors, and the process may have no more. Linux's numbers.
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
                write!(f, "what answers there is not a Remora listener: check the port")
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
            ConnectError::Full(full) if full.places == Places::Clients => {
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
