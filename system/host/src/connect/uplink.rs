//! The part of a NIC that the set-up of connections uses: the facts about its port, and its peers.

use remora_port::{Endpoint, Peer};
use std::fmt;
use std::net::TcpStream;
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

    /// Returns the link from the NIC to itself, which connects two of its queue pairs.
    ///
    /// # Errors
    /// `Attach`: the port takes no more peers.
    fn loop_back(&self) -> Result<Peer, ConnectError>;

    /// Takes the link that another engine offers under this name.
    ///
    /// # Errors
    /// `Link`: there is no such link. `Attach`: the port takes no more peers.
    fn take_link(&self, from: &LinkPeer, name: &str, patience: Duration) -> Result<Peer, ConnectError>;

    /// Offers a link to one other engine.
    ///
    /// # Errors
    /// `Link`: the system refuses the memory or the socket.
    fn offer_link(&self) -> Result<Box<dyn LinkOfferer + '_>, ConnectError>;

    /// Makes the NIC with this endpoint, or all members of this multicast group, reachable from the port's
    /// address with this number, without asking the NIC. Waits at most `patience` for the route.
    ///
    /// # Errors
    /// `Attach`: there is no route or no such address, or the port takes no more peers.
    fn reach(&self, address: u8, endpoint: Endpoint, patience: Duration) -> Result<Peer, ConnectError>;

    /// Counts one user of a peer less.
    fn release_peer(&self, peer: Peer);
}

/// The engine at the other end of a link.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct LinkPeer {
    /// Random id of the engine.
    pub id: EngineId,
    /// Address and UDP port of its NIC.
    pub endpoint: Endpoint,
}

impl LinkPeer {
    pub(super) fn of(hello: &Hello) -> LinkPeer {
        LinkPeer { id: hello.engine, endpoint: hello.endpoint }
    }
}

/// A link that is offered to one other engine.
pub trait LinkOfferer {
    /// Returns the name by which the other engine takes the link.
    fn name(&self) -> &str;

    /// Waits until the other engine has taken the link, as long as the TCP connection `stream` of its program
    /// stays open.
    ///
    /// # Errors
    /// The other engine has not taken the link in time, or its program has hung up.
    fn give(
        self: Box<Self>,
        to: &LinkPeer,
        stream: Option<&mut TcpStream>,
        patience: Duration,
    ) -> Result<Peer, ConnectError>;
}
