//! The peers that an engine can reach, with the number of queue pairs, address handles and programs that
//! use each. A link lasts as long as the process at its other end; the number of an endpoint lasts as long
//! as its users.

use remora_port::Peer;
use std::collections::BTreeMap;

/// The name of an engine, unique over all machines and runs: 128 random bits.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EngineId(pub u128);

#[derive(Debug)]
struct Entry {
    id: Option<EngineId>,
    users: u64,
    /// True if the port may forget the peer with its last user, because it is not a link, or is a link that
    /// is lost.
    ends: bool,
}

impl Entry {
    /// A link without users.
    const LINK: Entry = Entry { id: None, users: 0, ends: false };
}

/// The peers of an engine's port.
#[derive(Debug, Default)]
pub struct Peers {
    by_id: BTreeMap<EngineId, Peer>,
    entries: BTreeMap<u32, Entry>,
}

impl Peers {
    /// Returns the living peer with this name and counts one more user; `None` if there is none.
    pub fn reuse(&mut self, id: EngineId) -> Option<Peer> {
        let peer = *self.by_id.get(&id)?;
        self.entries.get_mut(&peer.0)?.users += 1;
        Some(peer)
    }

    /// Returns whether a living peer with this name is known.
    pub fn knows(&self, id: EngineId) -> bool {
        self.by_id.contains_key(&id)
    }

    /// Adds a new link with one user. It takes over the name from an older link.
    pub fn add(&mut self, id: EngineId, peer: Peer) {
        let entry = self.entries.entry(peer.0).or_insert(Entry::LINK);
        entry.users += 1;
        entry.id = Some(id);
        if let Some(old) = self.by_id.insert(id, peer)
            && old != peer
            && let Some(old) = self.entries.get_mut(&old.0)
        {
            old.id = None;
        }
    }

    /// Counts one more user of a link that has no name.
    pub fn retain(&mut self, peer: Peer) {
        self.entries.entry(peer.0).or_insert(Entry::LINK).users += 1;
    }

    /// Counts one more user of a peer that is an endpoint or a group. The port forgets such a peer with its
    /// last user.
    pub fn retain_endpoint(&mut self, peer: Peer) {
        self.entries.entry(peer.0).or_insert(Entry { ends: true, ..Entry::LINK }).users += 1;
    }

    /// Counts one user less. Returns true if it was the last user of an endpoint or of a lost link, so that
    /// the port may forget the peer.
    pub fn release(&mut self, peer: Peer) -> bool {
        let Some(entry) = self.entries.get_mut(&peer.0) else { return false };
        entry.users = entry.users.saturating_sub(1);
        let over = entry.users == 0 && entry.ends;
        if over {
            self.entries.remove(&peer.0);
        }
        over
    }

    /// Records that the peer died: its name is free for a newer link. Returns true if the peer has no
    /// users.
    pub fn lose(&mut self, peer: Peer) -> bool {
        let Some(entry) = self.entries.get_mut(&peer.0) else { return true };
        entry.ends = true;
        if let Some(id) = entry.id.take() {
            self.by_id.remove(&id);
        }
        let over = entry.users == 0;
        if over {
            self.entries.remove(&peer.0);
        }
        over
    }

    /// Removes a peer without users, to make space for another one.
    pub fn evict(&mut self) -> Option<Peer> {
        let (peer, id) =
            self.entries.iter().find(|(_, entry)| entry.users == 0).map(|(peer, entry)| (*peer, entry.id))?;
        self.entries.remove(&peer);
        if let Some(id) = id {
            self.by_id.remove(&id);
        }
        Some(Peer(peer))
    }

    /// Returns the number of known peers, including dead ones that are still used.
    pub fn count(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: EngineId = EngineId(1);
    const B: EngineId = EngineId(2);

    #[test]
    fn a_link_is_shared_and_stays_for_reuse_while_its_peer_lives() {
        let mut peers = Peers::default();
        assert_eq!(peers.reuse(A), None);
        peers.add(A, Peer(0));
        assert_eq!(peers.reuse(A), Some(Peer(0)));
        assert!(!peers.release(Peer(0)));
        assert!(!peers.release(Peer(0)), "unused, but alive");
        assert_eq!(peers.reuse(A), Some(Peer(0)));
    }

    #[test]
    fn a_dead_peer_is_forgotten_when_its_last_user_goes() {
        let mut peers = Peers::default();
        peers.add(A, Peer(0));
        peers.add(B, Peer(1));
        assert!(!peers.lose(Peer(0)), "still named by a queue pair");
        assert!(!peers.knows(A) && peers.knows(B));
        peers.add(A, Peer(2));
        assert!(peers.release(Peer(0)));
        assert_eq!(peers.reuse(A), Some(Peer(2)), "the newer link has the name");
        assert!(!peers.release(Peer(1)));
        assert!(peers.lose(Peer(1)), "the peer is unused");
    }

    #[test]
    fn a_peer_without_a_name_is_forgotten_when_it_died_and_its_last_user_went() {
        let mut peers = Peers::default();
        peers.retain(Peer(3));
        peers.retain(Peer(3));
        assert!(!peers.release(Peer(3)) && !peers.lose(Peer(3)), "still used");
        assert!(peers.release(Peer(3)), "dead, and used no more");
        peers.retain(Peer(3));
        assert!(!peers.release(Peer(3)), "alive");
        assert!(peers.lose(Peer(3)), "the peer is unused");
    }

    #[test]
    fn an_endpoint_is_forgotten_with_its_last_user() {
        let mut peers = Peers::default();
        for _ in 0..3 {
            peers.retain_endpoint(Peer(7));
            peers.retain_endpoint(Peer(7));
            assert!(!peers.release(Peer(7)), "one user remains");
            assert!(peers.release(Peer(7)));
            assert_eq!((peers.count(), peers.release(Peer(7))), (0, false));
        }
    }

    #[test]
    fn only_unused_peers_are_evicted() {
        let mut peers = Peers::default();
        peers.add(A, Peer(0));
        assert_eq!(peers.evict(), None);
        peers.release(Peer(0));
        assert_eq!(peers.evict(), Some(Peer(0)));
        assert_eq!((peers.evict(), peers.count(), peers.knows(A)), (None, 0, false));
    }

    #[test]
    fn the_old_link_of_a_name_does_not_take_the_new_one_with_it() {
        let mut peers = Peers::default();
        peers.add(A, Peer(0));
        peers.add(A, Peer(1));
        peers.lose(Peer(0));
        assert_eq!(peers.reuse(A), Some(Peer(1)));
    }
}
