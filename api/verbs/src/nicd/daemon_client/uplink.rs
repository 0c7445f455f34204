//! The port of a daemon's NIC, for setting up the connections of a program. The program exchanges the
//! messages with its peer; links and ways to peers belong to the daemon, so that they outlive the program.

use remora_host::connect::{ConnectError, LinkOfferer, LinkPeer, Uplink};
use remora_host::packet::PacketSocket;
use remora_host::{EngineId, PortFacts};
use remora_wire::frame::{Endpoint, Peer};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::super::message::{LongRequest, Reply, Request};
use super::{DaemonClient, NONSENSE, SLACK, receive};
use crate::CreateError;

fn failed(error: impl ToString) -> ConnectError {
    ConnectError::Daemon(error.to_string())
}

impl DaemonClient {
    /// Sends a request whose reply is a peer.
    fn peer(&self, request: &Request) -> Result<Peer, ConnectError> {
        match self.ask(request, &[]).map_err(failed)?.0 {
            Reply::Peer(peer) => Ok(peer),
            _ => Err(failed(NONSENSE)),
        }
    }

    /// Sends a request whose answer is a peer and comes over a socket of its own.
    fn long(
        &self,
        request: LongRequest,
        stream: Option<BorrowedFd<'_>>,
        patience: Duration,
    ) -> Result<Peer, ConnectError> {
        if self.fork.is_child() {
            return Err(ConnectError::Forked);
        }
        let (here, there) = PacketSocket::pair().map_err(ConnectError::Tcp)?;
        let patience = patience + SLACK;
        here.set_patience(None, Some(patience)).map_err(ConnectError::Tcp)?;
        let there = OwnedFd::from(there);
        let mut descriptors = vec![there.as_fd()];
        descriptors.extend(stream);
        match self.ask(&Request::Long(request), &descriptors).map_err(failed)?.0 {
            Reply::Done => {}
            _ => return Err(failed(NONSENSE)),
        }
        drop(there);
        match receive(&here, patience).map_err(|error| failed(CreateError::from(error)))? {
            (Reply::Peer(peer), _) => Ok(peer),
            _ => Err(failed(NONSENSE)),
        }
    }
}

impl Uplink for DaemonClient {
    fn facts(&self) -> PortFacts {
        self.facts
    }

    fn id(&self) -> EngineId {
        self.engine
    }

    fn irn_reach(&self) -> u32 {
        self.irn_reach
    }

    fn reuse_link(&self, id: EngineId) -> Option<Peer> {
        self.peer(&Request::ReuseLink(id)).ok()
    }

    fn loop_back(&self) -> Result<Peer, ConnectError> {
        self.peer(&Request::LoopBack)
    }

    fn take_link(&self, from: &LinkPeer, name: &str, patience: Duration) -> Result<Peer, ConnectError> {
        let request = LongRequest::TakeLink { from: *from, name: name.to_owned(), patience };
        self.long(request, None, patience)
    }

    fn offer_link(&self) -> Result<Box<dyn LinkOfferer + '_>, ConnectError> {
        match self.ask(&Request::OfferLink, &[]).map_err(failed)?.0 {
            Reply::Link { name, offer } => {
                Ok(Box::new(OfferedLink { daemon: self, name, offer: Some(offer) }))
            }
            _ => Err(failed(NONSENSE)),
        }
    }

    fn reach(&self, address: u8, endpoint: Endpoint, patience: Duration) -> Result<Peer, ConnectError> {
        self.long(LongRequest::Reach { address, endpoint, patience }, None, patience)
    }

    fn release_peer(&self, peer: Peer) {
        self.release_by(&Request::ReleasePeer(peer));
    }
}

/// A link that the daemon offers to a peer. Dropping it withdraws the offer.
struct OfferedLink<'a> {
    daemon: &'a DaemonClient,
    name: String,
    /// The number of the offer, until the link is given.
    offer: Option<u32>,
}

impl Drop for OfferedLink<'_> {
    fn drop(&mut self) {
        if let Some(offer) = self.offer {
            self.daemon.release_by(&Request::WithdrawLink(offer));
        }
    }
}

impl LinkOfferer for OfferedLink<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn give(
        mut self: Box<Self>,
        to: &LinkPeer,
        stream: Option<&mut TcpStream>,
        patience: Duration,
    ) -> Result<Peer, ConnectError> {
        let offer = self.offer.take().unwrap_or_default();
        let request = LongRequest::GiveLink { to: *to, offer, patience };
        self.daemon.long(request, stream.as_ref().map(|stream| stream.as_fd()), patience)
    }
}
