//! A borrowed QPN range, and the requests on its connection to the broker.

use remora_host::packet::PacketSocket;
use remora_port::udp::SharedEndpoint;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::error::ClientError;
use crate::broker::Broker;
use crate::message::{MAX_PACKET, Reply, Request};
use crate::name;

/// The parts that keep a range borrowed: the connection, and the broker if it is a thread of this process.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: PacketSocket,
    /// Held during a request, so that there is one at a time.
    pub(super) asking: Mutex<()>,
    /// Dropped last, when the connection has ended.
    pub(super) _alone: Option<Broker>,
}

/// A QPN range on one or more addresses. The range is given back when this value, its clones, and the
/// devices on its endpoints are dropped.
#[derive(Clone, Debug)]
pub struct Range {
    pub(super) connection: Arc<Connection>,
    pub(super) first: SharedEndpoint,
}

impl Range {
    /// The number of the range: the upper seven bits of its QP numbers, 1 to 127.
    pub fn number(&self) -> u8 {
        self.first.range()
    }

    /// The share of the address for which the range was borrowed.
    pub fn endpoint(&self) -> &SharedEndpoint {
        &self.first
    }

    /// Borrows a share of a further address, with the same range.
    ///
    /// # Errors
    /// `Refused` by the broker; `Silent`, `Nonsense`, `System`.
    pub fn further(&self, address: SocketAddr) -> Result<SharedEndpoint, ClientError> {
        let _one = self.connection.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let request = Request::Address(name::standard(address));
        let share = lent(ask(&self.connection.socket, &request)?)?;
        Ok(share.held_by(Arc::clone(&self.connection) as _))
    }

    /// The descriptor of the connection to the broker, readable when the broker is gone.
    pub fn broker(&self) -> std::os::fd::BorrowedFd<'_> {
        self.connection.socket.as_fd()
    }

    /// Returns whether the broker is gone.
    pub fn is_over(&self) -> bool {
        is_over(&self.connection.socket)
    }
}

/// Returns whether the other end of a connection has hung up.
pub(super) fn is_over(socket: &PacketSocket) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    // A hang-up is reported without being requested.
    let mut waited = [PollFd::new(socket, PollFlags::empty())];
    poll(&mut waited, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// A reply and its descriptors.
pub(super) type Answer = (Reply, Vec<OwnedFd>);

/// Asks for a socket for one purpose, which the broker sends with the reply `reply`.
pub(super) fn ask_for_socket(
    range: &Range,
    request: &Request,
    reply: &Reply,
) -> Result<PacketSocket, ClientError> {
    let _one = range.connection.asking.lock().unwrap_or_else(PoisonError::into_inner);
    match ask(&range.connection.socket, request)? {
        (answer, descriptors) if answer == *reply => {
            let [socket] = <[OwnedFd; 1]>::try_from(descriptors).map_err(|_| ClientError::Nonsense)?;
            Ok(PacketSocket::from(socket))
        }
        _ => Err(ClientError::Nonsense),
    }
}

/// Sends a request and waits for its reply. A refusal is an error.
pub(super) fn ask(socket: &PacketSocket, request: &Request) -> Result<Answer, ClientError> {
    let silent = |error: io::Error| match error.kind() {
        ErrorKind::TimedOut => ClientError::Silent(Duration::ZERO),
        _ => ClientError::System(error),
    };
    // A broker that refuses hangs up at once, but its refusal can still be read.
    let sent = socket.send(&request.emit(), &[]);
    let mut buffer = [0; MAX_PACKET];
    let packet = match socket.receive(&mut buffer) {
        Err(error) if error.kind() == ErrorKind::ConnectionReset => socket.receive(&mut buffer),
        done => done,
    };
    let packet = packet.map_err(silent)?;
    if packet.len == 0 {
        sent.map_err(silent)?;
        return Err(ClientError::System(ErrorKind::UnexpectedEof.into()));
    }
    match Reply::parse(&buffer[..packet.len]) {
        Some(Reply::Refused(words)) => Err(ClientError::Refused(words)),
        Some(Reply::Ends(words)) => Err(ClientError::Ends(words)),
        Some(reply) if !packet.cut => Ok((reply, packet.descriptors)),
        _ => Err(ClientError::Nonsense),
    }
}

/// Returns the share in a reply.
pub(super) fn lent((reply, descriptors): Answer) -> Result<SharedEndpoint, ClientError> {
    let Reply::Lent { range, address } = reply else { return Err(ClientError::Nonsense) };
    let descriptors = <[OwnedFd; 3]>::try_from(descriptors).map_err(|_| ClientError::Nonsense)?;
    SharedEndpoint::from_descriptors(address, range, descriptors).ok_or(ClientError::Nonsense)
}
