//! The bounded table of a port's peers, and of the neighbours that are their next hops.

use super::neighbours::{Mac, Reachability};
use crate::slots::Slots;
use remora_wire::frame::{Endpoint, Peer};
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// The reason why an endpoint cannot become a peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The endpoint is IPv4 and the port IPv6, or the other way round.
    #[error("{0} cannot be reached from here: one end is IPv4, the other IPv6")]
    OtherFamily(Endpoint),
    /// The address is not that of a single host, or the UDP port is 0.
    #[error("{0} does not name one UDP port of one host")]
    NotAHost(Endpoint),
    /// The maximum number of peers (this many) is in use.
    #[error(
        "all {0} peers that this port can have are in use: close connections or destroy address handles, \
         or open another device"
    )]
    Full(u32),
    /// Another address of this machine, which frames sent on an interface cannot reach.
    #[error(
        "{0} is an address of this machine, which frames of an interface cannot reach: use port shm or udp"
    )]
    OwnMachine(Endpoint),
    /// There is no route to the endpoint.
    #[error("there is no route to {0}: `ip route get {address}` says the same; add one", address = .0.address)]
    NoRoute(Endpoint),
    /// The route uses another interface than this port's.
    #[error(
        "the route to {peer} does not leave by {interface}: open the port on the interface that `ip route \
         get {}` names, or add a route by {interface}",
        .peer.address
    )]
    OtherWay {
        /// The requested peer.
        peer: Endpoint,
        /// This port's interface.
        interface: String,
    },
    /// No host on the interface's network answers for the next hop.
    #[error(
        "{hop} did not answer on {interface} in {:.1} s, {} asked for: see that it is up, that its \
         address is not tentative there (`ip address`), and that its cable or network is this one (`ip \
         neighbour show dev {interface}`)",
        .waited.as_secs_f64(),
        times(*.asked)
    )]
    Silent {
        /// The next hop that was resolved in vain: the peer or the gateway to it.
        hop: IpAddr,
        /// This port's interface.
        interface: String,
        /// Time that the port has waited.
        waited: Duration,
        /// Number of requests to the kernel to resolve the hop; the kernel sends three packets for each.
        asked: u32,
    },
    /// The kernel does not answer.
    #[error("the kernel does not tell the way to the peer: {0}")]
    Os(rustix::io::Errno),
}

fn times(count: u32) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

/// The next hop of a peer's frames.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum To {
    /// The neighbour with this number.
    Hop(u32),
    /// This port itself.
    Own,
}

#[derive(Debug)]
struct Entry {
    endpoint: Endpoint,
    target: To,
}

/// The degree to which a neighbour's address can be trusted.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Trust {
    /// The address is valid.
    Good,
    /// The address may be wrong: the next frame makes the kernel check it.
    Doubtful,
    /// The kernel was asked to resolve the neighbour.
    Asked,
}

#[derive(Debug)]
struct Hop {
    address: IpAddr,
    /// Number of peers whose frames use this hop.
    users: u32,
    mac: Option<Mac>,
    trust: Trust,
}

/// The path of a frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// Sends the frame to this address.
    Send(Mac),
    /// Sends the frame to this address, and makes the kernel check that the neighbour is still reachable.
    SendAndAsk(Mac, IpAddr),
    /// Drops the frame, because the peer's MAC address is not known. If a hop is given, makes the kernel
    /// resolve it.
    Drop(Option<IpAddr>),
    /// Hand the frame to this port itself.
    Loop,
}

/// All peers by number and by endpoint. The number of a peer is valid until [`Peers::remove`].
#[derive(Debug)]
pub(super) struct Peers {
    entries: Slots<Entry>,
    by_endpoint: HashMap<Endpoint, Peer>,
    hops: Slots<Hop>,
    by_address: HashMap<IpAddr, u32>,
    /// Number of neighbours whose address is not known.
    unknown: usize,
    max: u32,
    strangers: Vec<Option<(Endpoint, Mac)>>,
}

/// Maximum number of strangers that are remembered: endpoints that are answered at the MAC address that
/// their frames come from.
const STRANGERS: usize = 256;
/// Number of the first stranger; strangers' numbers are larger than those of all peers.
const FIRST_STRANGER: u32 = u32::MAX - STRANGERS as u32;

impl Peers {
    pub(super) fn new(max: u32) -> Self {
        Peers {
            entries: Slots::new(max),
            by_endpoint: HashMap::new(),
            hops: Slots::new(max),
            by_address: HashMap::new(),
            unknown: 0,
            max,
            strangers: Vec::new(),
        }
    }

    /// Returns the number of a stranger whose frames come from this MAC address. The number is valid until
    /// another stranger takes its slot.
    pub(super) fn stranger(&mut self, endpoint: &Endpoint, mac: Mac) -> Peer {
        if self.strangers.is_empty() {
            self.strangers.resize(STRANGERS, None);
        }
        let (halves, _) = endpoint.address.0.as_chunks::<8>();
        let mixed = (u64::from_le_bytes(halves[0]) ^ u64::from_le_bytes(halves[1]))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let index = (mixed >> 32) as usize % STRANGERS;
        self.strangers[index] = Some((*endpoint, mac));
        Peer(FIRST_STRANGER + index as u32)
    }

    fn stranger_of(&self, peer: Peer) -> Option<(Endpoint, Mac)> {
        *self.strangers.get(peer.0.checked_sub(FIRST_STRANGER)? as usize)?
    }

    /// Checks whether `peer` can be a peer of a port with the endpoint `own`.
    pub(super) fn admits(peer: Endpoint, own: Endpoint) -> Result<(), PeerError> {
        if peer.address.is_ipv4() != own.address.is_ipv4() {
            return Err(PeerError::OtherFamily(peer));
        }
        if !peer.address.is_host() || peer.udp_port == 0 {
            return Err(PeerError::NotAHost(peer));
        }
        Ok(())
    }

    /// Returns the number of this peer; `None` if it has none.
    pub(super) fn number(&self, peer: Endpoint) -> Option<Peer> {
        self.by_endpoint.get(&peer).copied()
    }

    /// Adds a peer with the next hop `hop`; `None` if the peer is this port itself.
    pub(super) fn add(&mut self, endpoint: Endpoint, hop: Option<IpAddr>) -> Result<Peer, PeerError> {
        let number =
            Peer(self.entries.insert(Entry { endpoint, target: To::Own }).ok_or(PeerError::Full(self.max))?);
        if let Some(address) = hop {
            // There are no more neighbours than peers, so there is a number for each.
            let hop = self.hop(address).ok_or(PeerError::Full(self.max))?;
            if let Some(entry) = self.entries.get_mut(number.0) {
                entry.target = To::Hop(hop);
            }
        }
        self.by_endpoint.insert(endpoint, number);
        Ok(number)
    }

    /// Frees the number of a peer, and with the last peer of a hop also the number of the hop.
    pub(super) fn remove(&mut self, peer: Peer) {
        let Some(entry) = self.entries.remove(peer.0) else { return };
        self.by_endpoint.remove(&entry.endpoint);
        let To::Hop(number) = entry.target else { return };
        let Some(hop) = self.hops.get_mut(number) else { return };
        hop.users -= 1;
        if hop.users == 0
            && let Some(hop) = self.hops.remove(number)
        {
            self.unknown -= usize::from(hop.mac.is_none());
            self.by_address.remove(&hop.address);
        }
    }

    /// Returns the number of a neighbour, which then has one more user; adds the neighbour if it is new.
    fn hop(&mut self, address: IpAddr) -> Option<u32> {
        if let Some(known) = self.by_address.get(&address).copied() {
            self.hops.get_mut(known)?.users += 1;
            return Some(known);
        }
        let number = self.hops.insert(Hop { address, users: 1, mac: None, trust: Trust::Doubtful })?;
        self.unknown += 1;
        self.by_address.insert(address, number);
        Some(number)
    }

    /// Records the kernel's state of a neighbour. A neighbour that no peer uses is ignored.
    pub(super) fn learn(&mut self, address: IpAddr, known: Reachability) {
        let Some(hop) = self.by_address.get(&address).and_then(|number| self.hops.get_mut(*number)) else {
            return;
        };
        let (mac, trust) = match known {
            Reachability::Fresh(mac) => (Some(mac), Trust::Good),
            Reachability::Stale(mac) => (Some(mac), Trust::Doubtful),
            // A formerly valid address is better than none.
            Reachability::Asking => (hop.mac, Trust::Asked),
            Reachability::No => (hop.mac, Trust::Doubtful),
        };
        self.unknown -= usize::from(hop.mac.is_none() && mac.is_some());
        (hop.mac, hop.trust) = (mac, trust);
    }

    /// Returns the path of a frame that is sent to `peer` now.
    #[inline(always)]
    pub(super) fn path(&mut self, peer: Peer) -> Path {
        let Some(entry) = self.entries.get(peer.0) else {
            return self.stranger_of(peer).map_or(Path::Drop(None), |(_, mac)| Path::Send(mac));
        };
        let To::Hop(number) = entry.target else { return Path::Loop };
        let Some(hop) = self.hops.get_mut(number) else { return Path::Drop(None) };
        match (hop.trust, hop.mac) {
            (Trust::Good | Trust::Asked, Some(mac)) => Path::Send(mac),
            (Trust::Doubtful, Some(mac)) => {
                hop.trust = Trust::Asked;
                Path::SendAndAsk(mac, hop.address)
            }
            (Trust::Doubtful, None) => {
                hop.trust = Trust::Asked;
                Path::Drop(Some(hop.address))
            }
            (_, None) => Path::Drop(None),
        }
    }

    /// Returns the destination MAC address of frames to `peer`, if it is known.
    pub(super) fn mac(&self, peer: Peer) -> Option<Mac> {
        let Some(entry) = self.entries.get(peer.0) else {
            return self.stranger_of(peer).map(|(_, mac)| mac);
        };
        match entry.target {
            To::Hop(number) => self.hops.get(number)?.mac,
            To::Own => None,
        }
    }

    pub(super) fn is_known(&self, peer: Peer) -> bool {
        self.entries.get(peer.0).is_some() || self.stranger_of(peer).is_some()
    }

    pub(super) fn endpoint(&self, peer: Peer) -> Option<Endpoint> {
        let known = self.entries.get(peer.0).map(|entry| entry.endpoint);
        known.or_else(|| self.stranger_of(peer).map(|(endpoint, _)| endpoint))
    }

    /// Returns whether there is a neighbour whose address is not known.
    #[inline(always)]
    pub(super) fn has_unknown(&self) -> bool {
        self.unknown > 0
    }

    /// Iterates over all neighbours.
    pub(super) fn hops(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.hops.iter().map(|hop| hop.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Mac = [2, 0, 0, 0, 0, 0xa];
    const B: Mac = [2, 0, 0, 0, 0, 0xb];

    fn at(text: &str) -> Endpoint {
        let address: std::net::SocketAddr = text.parse().unwrap();
        Endpoint { address: address.ip().into(), udp_port: address.port() }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_peer_keeps_its_number_and_a_full_table_refuses() {
        let mut peers = Peers::new(2);
        let hop = Some(ip("10.0.0.1"));
        assert_eq!(peers.add(at("10.0.0.1:4791"), hop), Ok(Peer(0)));
        assert_eq!(peers.add(at("10.0.0.1:4792"), hop), Ok(Peer(1)), "same host, other NIC");
        assert_eq!(peers.add(at("10.0.0.2:4791"), hop), Err(PeerError::Full(2)));
        assert_eq!(peers.number(at("10.0.0.1:4791")), Some(Peer(0)));
        assert_eq!(peers.number(at("10.0.0.2:4791")), None);
        assert!(peers.is_known(Peer(1)) && !peers.is_known(Peer(2)));
        assert_eq!(peers.path(Peer(2)), Path::Drop(None));
    }

    #[test]
    fn a_removed_peer_gives_back_its_number_and_its_hop_with_the_last_peer_behind_it() {
        let mut peers = Peers::new(3);
        let gateway = Some(ip("10.0.0.254"));
        let first = peers.add(at("10.9.0.1:4791"), gateway).unwrap();
        let second = peers.add(at("10.9.0.2:4791"), gateway).unwrap();
        peers.remove(first);
        assert!(!peers.is_known(first) && peers.has_unknown());
        assert_eq!(peers.hops().count(), 1, "the second peer is behind the gateway, too");
        peers.remove(second);
        assert_eq!(
            (peers.hops().count(), peers.has_unknown(), peers.path(second)),
            (0, false, Path::Drop(None))
        );
        for last in 1..=200 {
            let neighbour = format!("10.0.0.{last}");
            let peer = peers.add(at(&format!("{neighbour}:4791")), Some(ip(&neighbour))).unwrap();
            peers.learn(ip(&neighbour), Reachability::Fresh(A));
            assert_eq!(peers.path(peer), Path::Send(A));
            peers.remove(peer);
        }
        assert!(peers.by_endpoint.is_empty() && peers.by_address.is_empty());
    }

    #[test]
    fn what_names_no_single_host_or_another_family_is_refused() {
        let own = at("10.0.0.9:4791");
        for text in ["0.0.0.0:4791", "224.0.0.1:4791", "255.255.255.255:4791", "10.0.0.1:0"] {
            assert_eq!(Peers::admits(at(text), own), Err(PeerError::NotAHost(at(text))), "{text}");
        }
        assert_eq!(
            Peers::admits(at("[fd00::1]:4791"), own),
            Err(PeerError::OtherFamily(at("[fd00::1]:4791")))
        );
        let multicast = at("[ff02::1]:4791");
        assert_eq!(Peers::admits(multicast, at("[fd00::2]:4791")), Err(PeerError::NotAHost(multicast)));
        assert_eq!(Peers::admits(at("10.0.0.1:4791"), own), Ok(()));
    }

    #[test]
    fn a_neighbour_nobody_knows_is_asked_for_once_and_its_frames_are_dropped() {
        let mut peers = Peers::new(9);
        let gateway = ip("10.0.0.254");
        peers.add(at("10.9.0.1:4791"), Some(gateway)).unwrap();
        peers.add(at("10.9.0.2:4791"), Some(gateway)).unwrap();
        assert!(peers.has_unknown());
        assert_eq!(peers.path(Peer(0)), Path::Drop(Some(gateway)));
        assert_eq!(peers.path(Peer(1)), Path::Drop(None), "the kernel is asking already");
        peers.learn(gateway, Reachability::Asking);
        assert_eq!(peers.path(Peer(0)), Path::Drop(None));
        peers.learn(gateway, Reachability::Fresh(A));
        assert!(!peers.has_unknown());
        assert_eq!((peers.path(Peer(0)), peers.path(Peer(1))), (Path::Send(A), Path::Send(A)));
    }

    #[test]
    fn a_neighbour_that_was_not_confirmed_is_asked_for_when_it_is_needed_and_used_meanwhile() {
        let mut peers = Peers::new(9);
        let hop = ip("fd00::1");
        peers.add(at("[fd00::1]:4791"), Some(hop)).unwrap();
        for doubt in [Reachability::Stale(A), Reachability::No] {
            peers.learn(hop, Reachability::Fresh(A));
            peers.learn(hop, doubt);
            assert_eq!(peers.path(Peer(0)), Path::SendAndAsk(A, hop));
            assert_eq!(peers.path(Peer(0)), Path::Send(A), "asked once");
        }
        peers.learn(hop, Reachability::Fresh(B));
        assert_eq!(
            (peers.path(Peer(0)), peers.mac(Peer(0))),
            (Path::Send(B), Some(B)),
            "the peer has a new MAC address"
        );
    }

    #[test]
    fn what_nobody_asked_about_is_no_news() {
        let mut peers = Peers::new(9);
        peers.learn(ip("10.0.0.1"), Reachability::Fresh(A));
        peers.add(at("10.0.0.1:4791"), Some(ip("10.0.0.1"))).unwrap();
        assert_eq!(peers.mac(Peer(0)), None);
        assert_eq!(peers.hops().collect::<Vec<_>>(), [ip("10.0.0.1")]);
    }
}
