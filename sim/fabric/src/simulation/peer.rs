//! What a NIC knows of a peer: its host, and the flow's hash, by which a host with several links chooses one.

use remora_wire::frame::Peer;

/// Links of a host at most: a NIC's transmit queues have numbers for so many ports of eight classes.
pub const UPLINKS_MAX: usize = 8;

/// Hashes of peers lie below this multiple of all numbers of links, so that they choose as the full hash
/// does.
const HASHES: u32 = 840;
const HOST_BITS: u32 = 16;

/// The host of a peer, and a hash.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PeerHost {
    /// Its number, which has 16 bits.
    pub host: u32,
    /// By which a port is chosen.
    pub hash: u32,
}

impl PeerHost {
    /// The one that a NIC calls so.
    #[inline]
    pub fn of(peer: Peer) -> PeerHost {
        PeerHost { host: peer.0 & ((1 << HOST_BITS) - 1), hash: peer.0 >> HOST_BITS }
    }

    /// The name for the NIC.
    pub fn peer(self) -> Peer {
        Peer(self.host | (self.hash % HASHES) << HOST_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peers_hash_chooses_among_any_number_of_links_as_the_full_one() {
        for hash in [0, 1, 839, 840, 0xdead_beef, u32::MAX] {
            let named = PeerHost::of(PeerHost { host: 0xffff, hash }.peer());
            assert_eq!(named.host, 0xffff);
            for links in 1..=UPLINKS_MAX as u32 {
                assert_eq!(named.hash % links, hash % links, "{hash} {links}");
            }
        }
    }
}
