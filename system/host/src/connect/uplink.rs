//! The part of a NIC that the set-up of connections uses: the facts about its port, and its peers.

use remora_port::shm::Link;
use remora_port::{Endpoint, Peer};
use std::fmt;
use std::time::Duration;

use super::{ConnectError, Hello};
use crate::engine::PortFacts;
use crate::peers::EngineId;

/// The port of a NIC with its peers. A peer that was returned counts one user more, until
/// [`release_peer`](Uplink::release_peer).
pub trait Uplink: fmt::Debug + Sync {
    /// Returns the facts about the port.
    fn facts(&self) -> PortFacts;

    /// Returns the random id of the NIC's engine, unique over all machines and runs.
    fn id(&self) -> EngineId;

    /// Returns the number of packets beyond the expected one that a queue pair with IRN tracks.
    fn irn_reach(&self) -> u32;

    /// Returns the living link to the engine with this id; `None` if there is none.
    fn reuse_link(&self, id: EngineId) -> Option<Peer>;

    /// Adds a link to the engine with this id at an endpoint.
    ///
    /// # Errors
    /// `Attach`: the port takes no more peers.
    fn add_link(&self, id: EngineId, endpoint: Endpoint, link: Link) -> Result<Peer, ConnectError>;

    /// Makes the NIC with this endpoint, or all members of this multicast group, reachable from the port's
    /// address with this number, without asking the NIC. Waits at most `patience` for the route.
    ///
    /// # Errors
    /// `Attach`: there is no route or no such address, or the port takes no more peers.
    fn reach(&self, address: u8, endpoint: Endpoint, patience: Duration) -> Result<Peer, ConnectError>;

    /// Returns true if queue pairs receive what others of the NIC send to their multicast group.
    fn loops_back_multicast(&self) -> bool;

    /// Counts one user of a peer less.
    fn release_peer(&self, peer: Peer);
}

/// Adds a link from a NIC to itself, to connect two of its queue pairs.
pub(super) fn add_loopback(uplink: &dyn Uplink) -> Result<Peer, ConnectError> {
    if let Some(peer) = uplink.reuse_link(uplink.id()) {
        return Ok(peer);
    }
    let link = Link::loopback(remora_port::shm::DEFAULT_GEOMETRY)
        .map_err(|errno| ConnectError::Link(errno.into()))?;
    uplink.add_link(uplink.id(), uplink.facts().endpoint, link)
}

/// Makes a NIC receive its own frames to a multicast group, of which one of its queue pairs will be a member.
///
/// # Errors
/// `Link`, `Attach`.
pub fn loop_back_multicast(uplink: &dyn Uplink) -> Result<(), ConnectError> {
    if uplink.loops_back_multicast() {
        return Ok(());
    }
    // The link stays as long as the engine.
    add_loopback(uplink).map(|_| ())
}

/// Adds the link to the NIC of this message.
pub(super) fn add_link(uplink: &dyn Uplink, remote: &Hello, link: Link) -> Result<Peer, ConnectError> {
    uplink.add_link(remote.engine, remote.endpoint, link)
}
