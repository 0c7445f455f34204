//! The bounded table of a port's peers.

use super::address;
use remora_wire::ROCE_PORT;
use remora_wire::frame::{Endpoint, Peer};
use rustix::net::SocketAddrAny;
use std::collections::HashMap;
use std::net::SocketAddr;

use crate::address::{is_broadcast, single};
use crate::slots::Slots;

/// The reason why an endpoint cannot become a peer.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The endpoint is IPv4 and the port IPv6, or the other way round.
    #[error("{0} cannot be reached from here: one end is IPv4, the other IPv6")]
    OtherFamily(SocketAddr),
    /// The address is not that of a single host, or the UDP port is 0.
    #[error("{0} does not name one UDP port of one host")]
    NotAHost(SocketAddr),
    /// The maximum number of peers (this many) is in use.
    #[error(
        "all {0} peers that this port can have are in use: close connections or destroy address handles, \
         or open another device"
    )]
    Full(u32),
}

/// A peer: its endpoint, and its address in the kernel's format.
#[derive(Debug)]
struct Entry {
    endpoint: Endpoint,
    address: SocketAddrAny,
}

/// Maximum number of strangers that are remembered: endpoints that frames are sent to without having been
/// added.
const STRANGERS: usize = 256;
/// Number of the first stranger; strangers' numbers are larger than those of all peers.
const FIRST_STRANGER: u32 = u32::MAX - STRANGERS as u32;

/// All peers by number and by endpoint. The number of a peer is valid until [`Peers::remove`], that of a
/// stranger until another stranger takes its slot.
#[derive(Debug)]
pub(super) struct Peers {
    entries: Slots<Entry>,
    by_endpoint: HashMap<Endpoint, Peer>,
    max: u32,
    strangers: Vec<Option<Entry>>,
}

impl Peers {
    pub(super) fn new(max: u32) -> Self {
        Peers { entries: Slots::new(max), by_endpoint: HashMap::new(), max, strangers: Vec::new() }
    }

    /// Returns the number of this peer; adds the peer if it is new.
    pub(super) fn add(&mut self, peer: SocketAddr, local: SocketAddr) -> Result<Peer, PeerError> {
        let ip = peer.ip();
        if peer.is_ipv4() != local.is_ipv4() {
            return Err(PeerError::OtherFamily(peer));
        }
        if let Some(known) = self.by_endpoint.get(&address::endpoint(peer)) {
            return Ok(*known);
        }
        if single(ip).is_err() || is_broadcast(ip) || peer.port() == 0 {
            return Err(PeerError::NotAHost(peer));
        }
        self.put(peer)
    }

    /// Returns the number of a multicast group; adds the group if it is new. The caller has checked that
    /// the address is a group's.
    pub(super) fn put(&mut self, peer: SocketAddr) -> Result<Peer, PeerError> {
        let endpoint = address::endpoint(peer);
        if let Some(known) = self.by_endpoint.get(&endpoint) {
            return Ok(*known);
        }
        let entry = Entry { endpoint, address: SocketAddrAny::from(peer) };
        let number = Peer(self.entries.insert(entry).ok_or(PeerError::Full(self.max))?);
        self.by_endpoint.insert(endpoint, number);
        Ok(number)
    }

    /// Frees the number of a peer or group. Frames to the number are dropped until it stands for another
    /// peer.
    pub(super) fn remove(&mut self, peer: Peer) {
        if let Some(entry) = self.entries.remove(peer.0) {
            self.by_endpoint.remove(&entry.endpoint);
        }
    }

    /// Returns the number of a stranger, and whether the stranger took the slot of another one. `None` if
    /// the address is not a single host's, or belongs to the other address family.
    pub(super) fn stranger(
        &mut self,
        endpoint: &Endpoint,
        peer: SocketAddr,
        local: SocketAddr,
    ) -> Option<(Peer, bool)> {
        if self.strangers.is_empty() {
            self.strangers.resize_with(STRANGERS, || None);
        }
        let (halves, _) = endpoint.address.0.as_chunks::<8>();
        let mixed =
            (u64::from_le_bytes(halves[0]) ^ u64::from_le_bytes(halves[1]) ^ u64::from(endpoint.udp_port))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let index = (mixed >> 32) as usize % STRANGERS;
        let number = Peer(FIRST_STRANGER + index as u32);
        let place = &mut self.strangers[index];
        if place.as_ref().is_some_and(|entry| entry.endpoint == *endpoint) {
            return Some((number, false));
        }
        let ip = peer.ip();
        if peer.is_ipv4() != local.is_ipv4() || single(ip).is_err() || is_broadcast(ip) || peer.port() == 0 {
            return None;
        }
        let taken =
            place.replace(Entry { endpoint: *endpoint, address: SocketAddrAny::from(peer) }).is_some();
        Some((number, taken))
    }

    /// Returns the address in the kernel's format; `None` if there is no such peer.
    #[inline(always)]
    pub(super) fn address(&self, peer: Peer) -> Option<&SocketAddrAny> {
        match self.entries.get(peer.0) {
            Some(entry) => Some(&entry.address),
            None => self.stranger_address(peer),
        }
    }

    /// Returns whether programs that share the peer's address are told apart by QPN range. This is so at
    /// RoCE's own UDP port.
    #[inline(always)]
    pub(super) fn has_ranges(&self, peer: Peer) -> bool {
        // A stranger speaks 1RMA, whose messages have no QP number.
        self.entries.get(peer.0).is_some_and(|entry| entry.endpoint.udp_port == ROCE_PORT)
    }

    #[cold]
    fn stranger_address(&self, peer: Peer) -> Option<&SocketAddrAny> {
        let index = peer.0.checked_sub(FIRST_STRANGER)?;
        self.strangers.get(index as usize)?.as_ref().map(|entry| &entry.address)
    }

    pub(super) fn endpoint(&self, peer: Peer) -> Option<Endpoint> {
        let stranger = || self.strangers.get(peer.0.checked_sub(FIRST_STRANGER)? as usize)?.as_ref();
        self.entries.get(peer.0).or_else(stranger).map(|entry| entry.endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn strangers_take_no_place_of_peers_and_are_no_more_than_so_many() {
        let mut peers = Peers::new(1);
        let local = at("127.0.0.1:4791");
        let stranger = |peers: &mut Peers, text: &str| {
            peers.stranger(&address::endpoint(at(text)), at(text), local).map(|(peer, _)| peer)
        };
        let first = stranger(&mut peers, "10.0.0.1:4791").unwrap();
        assert_eq!(stranger(&mut peers, "10.0.0.1:4791"), Some(first));
        assert_eq!(peers.endpoint(first), Some(address::endpoint(at("10.0.0.1:4791"))));
        assert!(peers.address(first).is_some());
        for refused in ["[fd00::1]:4791", "224.0.0.1:4791", "10.0.0.1:0", "0.0.0.0:4791", "255.255.255.255:1"]
        {
            assert_eq!(stranger(&mut peers, refused), None, "{refused}");
        }
        for port in 1..5_000 {
            let text = format!("10.0.0.2:{port}");
            let number = stranger(&mut peers, &text).unwrap();
            assert_eq!(peers.endpoint(number), Some(address::endpoint(at(&text))));
            assert!(number.0 >= FIRST_STRANGER && peers.strangers.len() == STRANGERS);
        }
        assert_eq!(peers.add(at("10.0.0.9:4791"), local), Ok(Peer(0)), "the only peer");
    }

    #[test]
    fn a_peer_keeps_its_number_and_a_full_table_refuses_only_new_ones() {
        let mut peers = Peers::new(2);
        let local = at("127.0.0.1:4791");
        assert_eq!(peers.add(at("10.0.0.1:4791"), local), Ok(Peer(0)));
        assert_eq!(peers.add(at("10.0.0.1:4792"), local), Ok(Peer(1)), "same host, other NIC");
        assert_eq!(peers.add(at("10.0.0.2:4791"), local), Err(PeerError::Full(2)));
        assert_eq!(peers.add(at("10.0.0.1:4791"), local), Ok(Peer(0)));
        assert!(peers.address(Peer(1)).is_some() && peers.address(Peer(2)).is_none());
    }

    /// Regression: peers of a port were never forgotten, so a server took no new client after 65,536
    /// client addresses.
    #[test]
    fn a_removed_peer_gives_its_number_and_its_name_back() {
        let mut peers = Peers::new(2);
        let local = at("127.0.0.1:4791");
        for port in 1..=1000 {
            let peer = peers.add(SocketAddr::new(at("10.0.0.1:1").ip(), port), local).unwrap();
            assert!(peers.address(peer).is_some());
            peers.remove(peer);
            assert_eq!((peers.endpoint(peer), peers.address(peer)), (None, None));
        }
        assert!(peers.by_endpoint.is_empty(), "names of removed peers");
        assert!(peers.add(at("10.0.0.2:1"), local).is_ok() && peers.add(at("10.0.0.2:2"), local).is_ok());
    }

    #[test]
    fn what_names_no_single_host_or_another_family_is_refused() {
        let mut peers = Peers::new(9);
        let v4 = at("127.0.0.1:4791");
        for text in
            ["0.0.0.0:4791", "224.0.0.1:4791", "255.255.255.255:4791", "127.255.255.255:4791", "10.0.0.1:0"]
        {
            assert_eq!(peers.add(at(text), v4), Err(PeerError::NotAHost(at(text))), "{text}");
        }
        assert_eq!(peers.add(at("[::1]:4791"), v4), Err(PeerError::OtherFamily(at("[::1]:4791"))));
        assert_eq!(
            peers.add(at("[ff02::1]:4791"), at("[::1]:1")),
            Err(PeerError::NotAHost(at("[ff02::1]:4791")))
        );
    }
}
