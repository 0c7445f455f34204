//! Connection set-up over TCP: two queue pairs exchange their numbers, and their ports become peers.
//!
//! ```text
//! client                                   server
//!   | -- REQUEST: who I am, my queue pair --> |
//!   | <-- ACCEPT: the same, and the link ---- |     shm: the link's name, or "the one we share already"
//!   |     (takes the link, RTR, RTS)          |     (gives the link, RTR, RTS)
//!   | -- READY -----------------------------> |
//!   | <-- GO -------------------------------- |
//! ```
//!
//! After GO both queue pairs are in RTS. Either side may answer REJECT with a text instead, and the server
//! may answer FULL. If both sides ask for it, the connection then stays open, so that its end shows that a
//! queue pair is gone (`lasting`). `message` defines the bytes. `listener`, `pending` and `request` are the
//! server's side, which strangers can reach: lengths, times and numbers at once are bounded.

mod error;
mod exchange;
mod full;
mod lasting;
mod listener;
mod message;
mod pending;
mod request;
mod shared;
mod source;
mod uplink;

use remora_nic::Service;
use remora_port::Peer;
use remora_wire::{Psn, Qpn};
use rustix::fd::OwnedFd;
use serde::{Deserialize, Serialize};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::port_kind::PortKind;
pub use error::ConnectError;
use error::Stage;
use exchange::{read, write};
pub use full::{Capacity, Full};
pub use lasting::{Departures, SetupConnection};
pub use listener::Listener;
pub use message::{Hello, IRN, LASTING, LinkOffer, Message, PRISM, SOURCE_PORT, STROM};
pub use pending::{PENDING, PENDING_OF_SOURCE};
pub(crate) use request::give_link;
pub use request::{Answered, Request};
pub use shared::REQUESTS;
pub use uplink::{LinkOfferer, LinkPeer, Uplink};

/// Version of the set-up messages.
pub const VERSION: u16 = 1;
/// Maximum length of private data in bytes.
pub const MAX_PRIVATE: usize = 256;

/// Longest time that the route to an endpoint is waited for without a connection set-up.
pub const ROUTE_PATIENCE: Duration = NEIGHBOUR_TIMEOUT;

/// The queue pair of one side and its attributes, as passed by its program.
#[derive(Clone, Debug)]
pub struct Side<'a> {
    /// The port of the queue pair's NIC.
    pub uplink: &'a dyn Uplink,
    /// Service of the queue pair: RC, UC, UD or XRC.
    pub service: Service,
    /// Q_Key of a datagram queue pair; 0 for other services.
    pub qkey: u32,
    /// Number of the queue pair.
    pub qp: Qpn,
    /// First PSN that the queue pair sends.
    pub psn: Psn,
    /// Largest path MTU in bytes that this side wants.
    pub path_mtu: u32,
    /// Number of READs and atomics that this side wants to have outstanding.
    pub initiator_depth: u8,
    /// Number of READs and atomics of the peer that this side can handle at a time.
    pub responder_resources: u8,
    /// Request for IRN, which is used if the peer requests it as well; otherwise both sides go back N.
    pub irn: bool,
    /// Request for PRISM, which is used if the peer requests it as well.
    pub prism: bool,
    /// Request for StRoM, which is used if the peer requests it as well.
    pub strom: bool,
    /// Request to keep the TCP connection of the set-up, which is kept if the peer requests it as well.
    pub lasting: bool,
    /// Up to [`MAX_PRIVATE`] bytes for the program on the other side.
    pub private_data: &'a [u8],
}

impl Side<'_> {
    fn hello(&self, link: LinkOffer) -> Result<Hello, ConnectError> {
        if self.private_data.len() > MAX_PRIVATE {
            return Err(ConnectError::PrivateTooLong(self.private_data.len()));
        }
        let facts = self.uplink.facts();
        Ok(Hello {
            kind: facts.kind,
            link,
            path_mtu: self.path_mtu.min(facts.path_mtu),
            service: self.service,
            qkey: self.qkey,
            qp: self.qp,
            psn: self.psn,
            initiator_depth: self.initiator_depth,
            responder_resources: self.responder_resources,
            endpoint: facts.endpoint,
            engine: self.uplink.id(),
            extensions: if self.irn { IRN } else { 0 }
                | if self.prism { PRISM } else { 0 }
                | if self.strom { STROM } else { 0 }
                | if self.lasting { LASTING } else { 0 }
                | if facts.source == facts.endpoint { SOURCE_PORT } else { 0 },
            irn_reach: if self.irn { self.uplink.irn_reach() } else { 0 },
            private_data: self.private_data.to_vec(),
        })
    }
}

crate::sent_as! {
    peer: Peer as u32, |peer| peer.0, |number| Some(Peer(number));
    hello: Hello as Vec<u8>, |hello| Message::Request(hello.clone()).emit(), |bytes| {
        match Message::parse(&bytes) {
            Ok(Message::Request(hello)) => Some(hello),
            _ => None,
        }
    };
}

/// The agreement of both sides, from the point of view of one of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreement {
    /// The port's number of the peer. This queue pair is counted as a user of the peer.
    #[serde(with = "peer")]
    pub peer: Peer,
    /// The first message of the other side.
    #[serde(with = "hello")]
    pub remote: Hello,
    /// Path MTU in bytes: the smaller of both sides' values.
    pub path_mtu: u32,
    /// Number of READs and atomics that this side may have outstanding.
    pub max_rd_atomic: u8,
    /// Extensions that both sides have.
    pub extensions: u64,
    /// Present if IRN is used: the number of packets that the other side can track ahead of the first
    /// missing one.
    pub irn: Option<u32>,
    /// True if PRISM is used.
    pub prism: bool,
    /// True if StRoM is used.
    pub strom: bool,
    /// True if both sides keep the TCP connection of the set-up as long as their queue pairs.
    pub lasting: bool,
}

impl Agreement {
    /// Returns the UDP port that the other side's frames come from; `None` if they may come from any port,
    /// or over shared memory.
    pub fn source_port(&self) -> Option<u16> {
        let known = self.remote.kind != PortKind::Shm && self.remote.extensions & SOURCE_PORT != 0;
        known.then_some(self.remote.endpoint.udp_port)
    }

    fn new(peer: Peer, local: &Hello, remote: Hello) -> Agreement {
        let extensions = local.extensions & remote.extensions;
        Agreement {
            peer,
            path_mtu: local.path_mtu.min(remote.path_mtu),
            max_rd_atomic: local.initiator_depth.min(remote.responder_resources),
            extensions,
            irn: (extensions & IRN != 0).then_some(remote.irn_reach),
            prism: extensions & PRISM != 0,
            strom: extensions & STROM != 0,
            lasting: extensions & LASTING != 0,
            remote,
        }
    }
}

/// Time within which a peer's neighbour must answer, unless the whole set-up has less. It covers several
/// rounds of three requests, because those of the first seconds are lost where an address is still being
/// checked or a link has just come up.
const NEIGHBOUR_TIMEOUT: Duration = Duration::from_secs(15);

/// The time when a whole set-up must be complete.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(crate) fn after(timeout: Duration) -> Deadline {
        Deadline(Instant::now() + timeout)
    }

    /// Returns the remaining time, never zero; `None` if the deadline has passed.
    pub(crate) fn left(self) -> Option<Duration> {
        let left = self.0.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }
}

/// Connects the queue pair of `side` to the one with which a [`Listener`] at `address` answers. `bring_up`
/// takes the queue pair to RTS. The TCP connection is returned with the agreement if both sides keep it.
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

fn resolve(address: impl ToSocketAddrs) -> Result<SocketAddr, ConnectError> {
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

/// Checks that these two queue pairs can be connected.
fn meet(local: &Hello, remote: &Hello) -> Result<(), ConnectError> {
    if !remote.kind.reaches(local.kind) {
        return Err(ConnectError::OtherKind { ours: local.kind, theirs: remote.kind });
    }
    let wanted = match local.service {
        Service::XrcInitiator => Service::XrcTarget,
        Service::XrcTarget => Service::XrcInitiator,
        same => same,
    };
    if remote.service == wanted {
        return Ok(());
    }
    Err(ConnectError::OtherService { ours: local.service, theirs: remote.service })
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

fn add_endpoint(uplink: &dyn Uplink, remote: &Hello, deadline: Deadline) -> Result<Peer, ConnectError> {
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
