//! The peers of the port that a tenant uses, and the links that it offers.

use remora_host::Engine;
use remora_host::connect::Uplink;
use remora_port::shm::Listener;
use remora_wire::frame::Peer;
use std::collections::BTreeMap;

use super::super::users::Claim;

/// A link that was offered to a peer and not taken yet.
pub(crate) struct Offer {
    pub(super) listener: Listener,
    pub(super) _claim: Claim,
}

/// The peers that a tenant uses, each with one claim for each of its users.
#[derive(Default)]
pub(crate) struct HeldPeers {
    pub(super) claims: BTreeMap<u32, Vec<Claim>>,
}

impl HeldPeers {
    /// Returns whether the tenant uses a peer.
    pub(crate) fn has(&self, peer: Peer) -> bool {
        self.claims.contains_key(&peer.0)
    }

    /// Counts one user of a peer less. Returns false if there is none.
    pub(super) fn release(&mut self, peer: Peer) -> bool {
        let Some(claims) = self.claims.get_mut(&peer.0) else { return false };
        claims.pop();
        if claims.is_empty() {
            self.claims.remove(&peer.0);
        }
        true
    }

    /// Gives back all peers.
    pub(super) fn release_all(&mut self, engine: &Engine) {
        self.release_unused(engine, &[]);
    }

    /// Gives back the peers whose users have ended; those of `used` have one user each.
    pub(super) fn release_unused(&mut self, engine: &Engine, used: &[Peer]) {
        for (number, claims) in &mut self.claims {
            let keeps = used.iter().filter(|peer| peer.0 == *number).count();
            while claims.len() > keeps {
                claims.pop();
                engine.release_peer(Peer(*number));
            }
        }
        self.claims.retain(|_, claims| !claims.is_empty());
    }
}
