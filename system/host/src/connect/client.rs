//! The client's side of the set-up, and both sides within one process.

use remora_port::Peer;
use rustix::fd::OwnedFd;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use super::agreement::{Agreement, meet};
use super::deadline::{Deadline, NEIGHBOUR_TIMEOUT};
use super::error::{ConnectError, Stage};
use super::exchange::{read, write};
use super::lasting::SetupConnection;
use super::message::{Hello, LinkOffer, Message};
use super::side::Side;
use super::source;
use super::uplink::{LinkPeer, Uplink};
use crate::port_kind::PortKind;

/// Connects the queue pair of `side` to the one with which a [`Listener`](super::Listener) at `address`
/// answers. `bring_up` takes the queue pair to RTS. The TCP connection is returned with the agreement if both
/// sides keep it.
///
/// # Errors
/// [`ConnectError`]. If the call fails after `bring_up`, the caller must destroy the queue pair, which
/// releases the peer as for any queue pair.
pub fn connect(
    address: impl ToSocketAddrs,
    side: &Side<'_>,
    timeout: Duration,
    mut bring_up: impl FnMut(&Agreement) -> Result<(), ConnectError>,
) -> Result<(Agreement, Option<SetupConnection>), ConnectError> {
    let deadline = Deadline::after(timeout);
    let address = resolve(address)?;
    match attempt(address, side, LinkOffer::None, deadline, &mut bring_up) {
        // The server remembers a link that this side has lost.
        Err(ConnectError::StaleLink) => attempt(address, side, LinkOffer::Wanted, deadline, &mut bring_up),
        done => done,
    }
}

pub(super) fn resolve(address: impl ToSocketAddrs) -> Result<SocketAddr, ConnectError> {
    let mut addresses = address.to_socket_addrs().map_err(ConnectError::Resolve)?;
    let address = addresses.next().ok_or(ConnectError::Resolve(std::io::ErrorKind::NotFound.into()))?;
    Ok(remora_port::address::canonical(address))
}

fn attempt(
    address: SocketAddr,
    side: &Side<'_>,
    link: LinkOffer,
    deadline: Deadline,
    bring_up: &mut impl FnMut(&Agreement) -> Result<(), ConnectError>,
) -> Result<(Agreement, Option<SetupConnection>), ConnectError> {
    let local = side.hello(link)?;
    let left = deadline.left().ok_or(ConnectError::Timeout(Stage::Connecting))?;
    let mut stream =
        source::connect(address, &local, left).map_err(|error| ConnectError::tcp(address, error))?;
    // Four small messages are exchanged, and each is waited for.
    let _ = stream.set_nodelay(true);
    write(&mut stream, &Message::Request(local.clone()), deadline)?;
    let remote = match read(&mut stream, deadline, Stage::Answer)? {
        Message::Accept(hello) => hello,
        Message::Reject(words) => return Err(ConnectError::Rejected(words)),
        Message::Full(full) => return Err(ConnectError::Full(full)),
        _ => return Err(ConnectError::BadMessage),
    };
    let agreed =
        take_peer(side.uplink, &local, remote, deadline).and_then(|agreement| match bring_up(&agreement) {
            Ok(()) => Ok(agreement),
            Err(error) => {
                side.uplink.release_peer(agreement.peer);
                Err(error)
            }
        });
    match agreed {
        Ok(agreement) => {
            write(&mut stream, &Message::Ready, deadline)?;
            match read(&mut stream, deadline, Stage::Go)? {
                Message::Go => {
                    let lasting = agreement.lasting;
                    Ok((agreement, lasting.then(|| SetupConnection::from(OwnedFd::from(stream)))))
                }
                Message::Reject(words) => Err(ConnectError::Rejected(words)),
                _ => Err(ConnectError::BadMessage),
            }
        }
        Err(error) => {
            // The refusal saves the other side from waiting for an answer.
            let _ = write(&mut stream, &Message::Reject(error.to_string()), deadline);
            Err(error)
        }
    }
}

/// Makes the server's port a peer of the client's port.
fn take_peer(
    uplink: &dyn Uplink,
    local: &Hello,
    remote: Hello,
    deadline: Deadline,
) -> Result<Agreement, ConnectError> {
    meet(local, &remote)?;
    let peer = match (&remote.link, local.kind) {
        (LinkOffer::None, PortKind::Udp | PortKind::Xdp) => add_endpoint(uplink, &remote, deadline)?,
        (LinkOffer::Existing, PortKind::Shm) => {
            uplink.reuse_link(remote.engine).ok_or(ConnectError::StaleLink)?
        }
        (LinkOffer::New(name), PortKind::Shm) => {
            let left = deadline.left().ok_or(ConnectError::Timeout(Stage::Link))?;
            uplink.take_link(&LinkPeer::of(&remote), name, left)?
        }
        _ => return Err(ConnectError::BadMessage),
    };
    Ok(Agreement::new(peer, local, remote))
}

pub(super) fn add_endpoint(
    uplink: &dyn Uplink,
    remote: &Hello,
    deadline: Deadline,
) -> Result<Peer, ConnectError> {
    let left = deadline.left().ok_or(ConnectError::Timeout(Stage::Link))?;
    uplink.reach(0, remote.endpoint, left.min(NEIGHBOUR_TIMEOUT))
}

/// Connects two queue pairs of this process without TCP. Each call of `bring_up` takes one queue pair to
/// RTS.
///
/// # Errors
/// [`ConnectError`].
pub fn connect_pair(
    first: &Side<'_>,
    second: &Side<'_>,
    timeout: Duration,
    mut bring_up: impl FnMut(usize, &Agreement) -> Result<(), ConnectError>,
) -> Result<(Agreement, Agreement), ConnectError> {
    let deadline = Deadline::after(timeout);
    let from_first = first.hello(LinkOffer::None)?;
    let from_second = second.hello(LinkOffer::None)?;
    meet(&from_first, &from_second)?;
    let peers = match from_first.kind {
        PortKind::Udp | PortKind::Xdp => (
            add_endpoint(first.uplink, &from_second, deadline)?,
            add_endpoint(second.uplink, &from_first, deadline)?,
        ),
        PortKind::Shm => link_pair(first, &from_first, second, &from_second, deadline)?,
    };
    let agreements = (
        Agreement::new(peers.0, &from_first, from_second.clone()),
        Agreement::new(peers.1, &from_second, from_first.clone()),
    );
    if let Err(error) = bring_up(0, &agreements.0).and_then(|()| bring_up(1, &agreements.1)) {
        first.uplink.release_peer(peers.0);
        second.uplink.release_peer(peers.1);
        return Err(error);
    }
    Ok(agreements)
}

fn link_pair(
    first: &Side<'_>,
    from_first: &Hello,
    second: &Side<'_>,
    from_second: &Hello,
    deadline: Deadline,
) -> Result<(Peer, Peer), ConnectError> {
    if from_first.engine == from_second.engine {
        return Ok((first.uplink.loop_back()?, second.uplink.loop_back()?));
    }
    let known = first.uplink.reuse_link(from_second.engine);
    if let Some(known) = known {
        if let Some(back) = second.uplink.reuse_link(from_first.engine) {
            return Ok((known, back));
        }
        first.uplink.release_peer(known);
    }
    let left = deadline.left().ok_or(ConnectError::Timeout(Stage::Link))?;
    let offered = first.uplink.offer_link()?;
    let name = offered.name().to_owned();
    let (given, taken) = std::thread::scope(|scope| {
        let to_first = LinkPeer::of(from_first);
        let taker = scope.spawn(move || second.uplink.take_link(&to_first, &name, left));
        let given = offered.give(&LinkPeer::of(from_second), None, left);
        (given, taker.join().map_err(|_| ConnectError::Timeout(Stage::Link)).and_then(|taken| taken))
    });
    match (given, taken) {
        (Ok(to_second), Ok(to_first)) => Ok((to_second, to_first)),
        (given, taken) => {
            given.iter().for_each(|peer| first.uplink.release_peer(*peer));
            taken.iter().for_each(|peer| second.uplink.release_peer(*peer));
            Err(given.and(taken).err().unwrap_or(ConnectError::Timeout(Stage::Link)))
        }
    }
}
