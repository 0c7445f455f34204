//! The packing of a peer's host and a flow hash into the NIC's peer number. A host with several links chooses
//! a link by this hash.

use remora_wire::frame::Peer;

/// Largest number of links of a host: a NIC's transmit queue numbers have space for this many ports with
/// eight classes each.
pub(crate) const UPLINKS_MAX: usize = 8;

/// Hashes are stored modulo this number. It is a multiple of 1 to 8, the possible numbers of links, so the
/// stored hash chooses the same link as the full one.
const HASHES: u32 = 840;
const HOST_BITS: u32 = 16;

/// A peer's host and hash.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerHost {
    /// Number of the host, of 16 bits.
    pub host: u32,
    /// Hash that chooses a link.
    pub hash: u32,
}

impl PeerHost {
    /// Unpacks a peer number.
    #[inline]
    pub(crate) fn of(peer: Peer) -> PeerHost {
        PeerHost { host: peer.0 & ((1 << HOST_BITS) - 1), hash: peer.0 >> HOST_BITS }
    }

    /// Packs host and hash into a peer number.
    pub(crate) fn peer(self) -> Peer {
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
