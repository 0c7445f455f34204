//! The peers of the port that a tenant uses: links to engines of this machine, and ways to others.

use remora_host::connect::{ConnectError, LinkPeer, Uplink};
use remora_host::packet::{PacketSocket, is_tcp};
use remora_host::{Engine, EngineId, PortKind};
use remora_port::shm::{Admit, DEFAULT_GEOMETRY, Listener};
use remora_wire::frame::Peer;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::super::message::{LongRequest, Refusal, Reply};
use super::super::users::{Amounts, Claim, OF_LINK, Resource};
pub(super) use super::held_peers::Offer;
use super::{ReplyResult, Shared, Tenant, unknown, words};

/// Upper limit of the time that one request may take.
const LONGEST: Duration = Duration::from_secs(60);
/// Time limit for sending the answer to the program.
const PATIENCE: Duration = Duration::from_secs(1);

/// The amounts of one user of a peer.
fn of_peer(port: PortKind) -> Amounts {
    let descriptors = if port == PortKind::Shm { OF_LINK } else { 0 };
    Amounts::of(Resource::Peer, 1).and(Resource::Descriptor, descriptors)
}

impl Tenant {
    /// Records that the tenant uses a peer, and replies with the peer. The peer counts this user already.
    fn add_peer(&mut self, peer: Peer) -> ReplyResult {
        let claim = self.claim_all(of_peer(self.engine.facts().kind));
        let claim = claim.inspect_err(|_| self.engine.release_peer(peer))?;
        self.peers.claims.entry(peer.0).or_default().push(claim);
        Ok((Reply::Peer(peer), Vec::new()))
    }

    pub(super) fn reuse_link(&mut self, id: EngineId) -> ReplyResult {
        let peer = self.engine.reuse_link(id).ok_or("there is no living link to this engine")?;
        self.add_peer(peer)
    }

    pub(super) fn loop_back(&mut self) -> ReplyResult {
        let peer = self.engine.loop_back().map_err(words)?;
        self.add_peer(peer)
    }

    pub(super) fn release_peer(&mut self, peer: Peer) -> Result<(), Refusal> {
        let users = self.objects.values().filter(|held| held.peer == Some(peer)).count();
        if self.peers.claims.get(&peer.0).is_some_and(|claims| claims.len() <= users) {
            return Err("queue pairs or address handles use this peer".into());
        }
        if !self.peers.release(peer) {
            return Err(unknown("peer", peer.0));
        }
        self.engine.release_peer(peer);
        Ok(())
    }

    pub(super) fn offer_link(&mut self) -> ReplyResult {
        let claim = self.claim_all(Amounts::of(Resource::Negotiation, 1).and(Resource::Descriptor, 1))?;
        let listener = Listener::new(DEFAULT_GEOMETRY, Admit::SameUser).map_err(words)?;
        let name = listener.name().to_owned();
        let offer = self.offers.last_key_value().map_or(0, |(last, _)| last + 1);
        self.offers.insert(offer, Offer { listener, _claim: claim });
        Ok((Reply::Link { name, offer }, Vec::new()))
    }
}

/// A long request with all that it needs.
enum Task {
    Reach {
        request: LongRequest,
        _claim: Box<Claim>,
    },
    /// The offer has a claim of its own.
    Give {
        offer: Box<Offer>,
        to: LinkPeer,
        stream: Option<TcpStream>,
        patience: Duration,
    },
}

impl Task {
    fn perform(self, engine: &Engine) -> Result<Peer, ConnectError> {
        match self {
            Task::Reach { request: LongRequest::Reach { address, endpoint, patience }, .. } => {
                if !endpoint.address.is_host() && !endpoint.address.is_multicast() {
                    return Err(ConnectError::Daemon("this is no address of a host or group".to_owned()));
                }
                engine.reach(address, endpoint, patience.min(LONGEST))
            }
            Task::Reach { request: LongRequest::TakeLink { from, name, patience }, .. } => {
                engine.take_link(&from, &name, patience.min(LONGEST))
            }
            Task::Reach { request: LongRequest::GiveLink { .. }, .. } => {
                Err(ConnectError::Daemon("this link was not offered".to_owned()))
            }
            Task::Give { offer, to, mut stream, patience } => {
                engine.give_link(&offer.listener, &to, stream.as_mut(), patience.min(LONGEST))
            }
        }
    }
}

/// Begins a request that may take long, in a thread of its own. The answer is sent over the socket that came
/// with the request.
pub(in crate::nicd) fn begin(
    tenant: &Shared,
    request: LongRequest,
    descriptors: Vec<OwnedFd>,
) -> ReplyResult {
    let mut descriptors = descriptors.into_iter();
    let reply = PacketSocket::from(descriptors.next().ok_or("this request needs a socket for its answer")?);
    reply.set_patience(Some(PATIENCE), None).map_err(|_| "the descriptor for the answer is no socket")?;
    let mut locked = tenant.lock().unwrap_or_else(PoisonError::into_inner);
    let engine = Arc::clone(&locked.engine);
    let task = match request {
        LongRequest::GiveLink { to, offer, patience } => {
            let offer = locked.offers.remove(&offer).ok_or_else(|| unknown("offered link", offer))?;
            let stream = descriptors.next();
            if stream.as_ref().is_some_and(|stream| !is_tcp(stream.as_fd())) {
                return Err("the second descriptor is no TCP connection".into());
            }
            Task::Give { offer: Box::new(offer), to, stream: stream.map(TcpStream::from), patience }
        }
        request => Task::Reach {
            request,
            _claim: Box::new(locked.claim_all(Amounts::of(Resource::Negotiation, 1))?),
        },
    };
    drop(locked);
    let owner = tenant.clone();
    let answer = move || {
        let reached = task.perform(&engine).map_err(words);
        let reached =
            reached.and_then(|peer| owner.lock().unwrap_or_else(PoisonError::into_inner).add_peer(peer));
        let (answer, _) = reached.unwrap_or_else(|refusal| (refusal.into(), Vec::new()));
        let _ = reply.send(&answer.emit(), &[]);
    };
    std::thread::Builder::new().name("remora-reach".to_owned()).spawn(answer).map_err(words)?;
    Ok((Reply::Done, Vec::new()))
}
