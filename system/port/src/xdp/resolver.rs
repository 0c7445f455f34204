//! Resolution of the route to a peer, with waiting. The kernel's requests on the network take time, so this
//! is not done on the data path.

use super::attachment::Attachment;
use super::interface::Interface;
use super::neighbours::{self, NextHop, Reachability};
use super::netlink::Netlink;
use super::options::OpenError;
use super::peers::{PeerError, Peers};
use remora_wire::frame::Endpoint;
use rustix::io::Errno;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A connection to the kernel of the network namespace in which the port was opened. The port shares it
/// with the code that sets up connections.
#[derive(Debug)]
pub struct Resolver {
    netlink: Mutex<Netlink>,
    interface: u32,
    name: String,
    own: Endpoint,
}

/// Interval between the first two look-ups in the kernel's table. It doubles each time, to leave the
/// machine time for other work.
const PAUSE: Duration = Duration::from_millis(1);
/// Longest interval between two look-ups.
const LONGEST_PAUSE: Duration = Duration::from_millis(64);

impl Resolver {
    pub(super) fn new(interface: &Interface, own: Endpoint) -> Result<Resolver, Errno> {
        let netlink = Mutex::new(Netlink::open(&[])?);
        Ok(Resolver { netlink, interface: interface.index, name: interface.name.clone(), own })
    }

    /// Creates a resolver for bare queues, for a program that builds its own frames.
    ///
    /// # Errors
    /// [`OpenError::Os`] if the kernel cannot create a socket.
    pub fn of(attachment: &Attachment) -> Result<Resolver, OpenError> {
        let failed = |errno| OpenError::Os("asking for neighbours", errno);
        Resolver::new(attachment.interface(), attachment.endpoint()).map_err(failed)
    }

    fn netlink(&self) -> MutexGuard<'_, Netlink> {
        self.netlink.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next hop of frames to `peer`; `None` if the peer is this port itself.
    pub(super) fn hop(&self, peer: Endpoint) -> Result<Option<IpAddr>, PeerError> {
        Peers::admits(peer, self.own)?;
        if peer == self.own {
            return Ok(None);
        }
        let way = neighbours::next_hop(
            &mut self.netlink(),
            self.own.address.into(),
            peer.address.into(),
            self.interface,
        );
        match way.map_err(PeerError::Os)? {
            NextHop::Out { interface, hop } if interface == self.interface => Ok(Some(hop)),
            NextHop::Out { .. } => Err(PeerError::OtherWay { peer, interface: self.name.clone() }),
            NextHop::Local => Err(PeerError::OwnMachine(peer)),
            NextHop::Broadcast => Err(PeerError::NotAHost(peer)),
            NextHop::Nowhere => Err(PeerError::NoRoute(peer)),
        }
    }

    /// Looks up a neighbour in the kernel's table.
    pub(super) fn known(&self, hop: IpAddr) -> Result<Reachability, PeerError> {
        neighbours::known(&mut self.netlink(), self.interface, hop).map_err(PeerError::Os)
    }

    /// Makes the kernel resolve a neighbour, or check that it is still reachable.
    pub(super) fn want(&self, hop: IpAddr) -> Result<(), PeerError> {
        neighbours::want(&mut self.netlink(), self.interface, hop).map_err(PeerError::Os)
    }

    /// Waits until the next hop of `peer` is resolved, at most for `timeout`. The kernel sends three
    /// requests, a second apart. When it has given up, it is asked once more, since its requests can be
    /// lost while an address of either side is still being checked (RFC 4862), or when a link has just come
    /// up.
    ///
    /// # Errors
    /// [`PeerError`] if the endpoint cannot be a peer, if there is no route, or if no answer arrived in
    /// time.
    pub fn wait(&self, peer: Endpoint, timeout: Duration) -> Result<(), PeerError> {
        match self.hop(peer)? {
            Some(hop) => self.wait_for(hop, timeout).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Waits like [`wait`](Resolver::wait), and returns the destination MAC address of frames to `peer`.
    ///
    /// # Errors
    /// The errors of [`Resolver::wait`]; `NotAHost` if the peer is this port itself.
    pub fn mac(&self, peer: Endpoint, timeout: Duration) -> Result<[u8; 6], PeerError> {
        let hop = self.hop(peer)?.ok_or(PeerError::NotAHost(peer))?;
        self.wait_for(hop, timeout)
    }

    fn wait_for(&self, hop: IpAddr, timeout: Duration) -> Result<[u8; 6], PeerError> {
        let started = Instant::now();
        let mut pause = PAUSE;
        let mut asked = 0;
        loop {
            match self.known(hop)? {
                Reachability::Fresh(mac) | Reachability::Stale(mac) => return Ok(mac),
                Reachability::Asking => {}
                Reachability::No => {
                    self.want(hop)?;
                    asked += 1;
                }
            }
            let waited = started.elapsed();
            if waited >= timeout {
                return Err(PeerError::Silent { hop, interface: self.name.clone(), waited, asked });
            }
            std::thread::sleep(pause.min(timeout - waited));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
