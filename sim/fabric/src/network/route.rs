//! Load balancing: the choice among several ports on shortest paths.

use super::flow_hash::{FlowKey, KeyedHash, mix};
use super::packet::{Flags, Packet};
use crate::engine::Picos;

/// The rule by which a switch chooses among equal paths.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Balancing {
    /// By a hash of the flow: all packets of a flow take one path (ECMP).
    Flow,
    /// Each packet takes the next path in turn.
    Packet,
    /// By a hash, but a flow that was idle for this many picoseconds takes a new path.
    Flowlet(u64),
    /// By the hash of another simulator. Packets carry the index of their flow's key.
    Keyed(KeyedHash),
}

/// The load balancing state of a switch.
#[derive(Clone, Debug)]
pub(crate) struct Chooser {
    salt: u32,
    turn: u32,
    /// For each flowlet: time of its last packet, and its path. Flows with equal hashes share an entry.
    flowlets: Box<[(Picos, u32)]>,
}

/// Number of flowlet entries of a switch; a power of two.
const FLOWLETS: usize = 1 << 12;
/// Bits for each tier of switches in a path.
const PATH_BITS: u32 = 8;

impl Chooser {
    /// Returns the state of a switch with this salt.
    pub(crate) fn new(salt: u32, balancing: Balancing) -> Chooser {
        let flowlets = if matches!(balancing, Balancing::Flowlet(_)) { FLOWLETS } else { 0 };
        Chooser { salt, turn: salt, flowlets: vec![(Picos(0), salt); flowlets].into() }
    }

    /// Chooses one of `count` ports; `count` is at least 1. `keys` are the keys of all flows. `tier` is the
    /// number of switches that the packet has passed on the way up.
    #[inline]
    pub(crate) fn choose(
        &mut self,
        balancing: Balancing,
        now: Picos,
        packet: &Packet,
        keys: &[FlowKey],
        tier: u32,
        count: usize,
    ) -> usize {
        if let Some(choice) = self.fixed(balancing, packet, keys, tier, count) {
            return choice;
        }
        if let Balancing::Flowlet(gap) = balancing {
            let place = &mut self.flowlets[mix(packet.hash) as usize % FLOWLETS];
            if now.since(place.0) > gap {
                self.turn = self.turn.wrapping_add(1);
                place.1 = mix(packet.hash ^ self.turn);
            }
            place.0 = now;
            return share(place.1, count);
        }
        self.turn = self.turn.wrapping_add(1);
        self.turn as usize % count
    }

    /// Returns the choice if it depends on the packet only. `count` is at least 1.
    #[inline]
    pub(crate) fn fixed(
        &self,
        balancing: Balancing,
        packet: &Packet,
        keys: &[FlowKey],
        tier: u32,
        count: usize,
    ) -> Option<usize> {
        if count == 1 {
            return Some(0);
        }
        if packet.flags.has(Flags::PATH) {
            let choice = packet.hash >> (PATH_BITS * tier) & ((1 << PATH_BITS) - 1);
            return Some(choice as usize % count);
        }
        match balancing {
            Balancing::Flow => Some(share(mix(packet.hash ^ self.salt), count)),
            Balancing::Keyed(hash) => {
                let key = keys.get(packet.hash as usize).copied().unwrap_or_default();
                Some(hash.of(key, self.salt) as usize % count)
            }
            Balancing::Packet | Balancing::Flowlet(_) => None,
        }
    }
}

/// Maps a hash to `0..count` evenly and without a division: the high bits of the product.
#[inline]
fn share(hash: u32, count: usize) -> usize {
    ((u64::from(hash) * count as u64) >> 32) as usize
}

/// Packs a path into a hash field: the number of the port to take at each tier, from the first switch on.
pub fn path(choices: &[u8]) -> u32 {
    choices
        .iter()
        .take(4)
        .enumerate()
        .fold(0, |path, (tier, choice)| path | u32::from(*choice) << (PATH_BITS * tier as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::flow_hash;

    fn packet(hash: u32) -> Packet {
        Packet::new(0, 0, 100, hash)
    }

    #[test]
    fn a_flow_keeps_its_path_and_flows_spread() {
        let mut chooser = Chooser::new(7, Balancing::Flow);
        let mut counts = [0; 4];
        for flow in 0..4_000 {
            let mut choose =
                || chooser.choose(Balancing::Flow, Picos(0), &packet(flow_hash(flow, 1, 2, 3)), &[], 0, 4);
            let port = choose();
            assert_eq!(port, choose());
            counts[port] += 1;
        }
        assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
    }

    #[test]
    fn packets_take_turns() {
        let mut chooser = Chooser::new(0, Balancing::Packet);
        let mut choose = || chooser.choose(Balancing::Packet, Picos(0), &packet(5), &[], 0, 4);
        assert_eq!([choose(), choose(), choose(), choose(), choose()], [1, 2, 3, 0, 1]);
    }

    #[test]
    fn a_flowlet_moves_only_behind_a_gap() {
        let balancing = Balancing::Flowlet(1_000);
        let mut chooser = Chooser::new(3, balancing);
        let mut seen = std::collections::BTreeSet::new();
        let mut now = Picos(10_000);
        for _ in 0..50 {
            let port = chooser.choose(balancing, now, &packet(5), &[], 0, 4);
            assert_eq!(chooser.choose(balancing, now.after(1_000), &packet(5), &[], 0, 4), port);
            seen.insert(port);
            now = now.after(2_001);
        }
        assert_eq!(seen.len(), 4);
    }

    #[test]
    fn a_path_names_a_port_for_each_tier() {
        let mut chooser = Chooser::new(3, Balancing::Flow);
        let mut packet = packet(path(&[2, 1]));
        packet.flags = Flags::PATH;
        let mut choice = |tier| chooser.choose(Balancing::Flow, Picos(0), &packet, &[], tier, 4);
        assert_eq!((choice(0), choice(1)), (2, 1));
    }

    #[test]
    fn a_keyed_hash_takes_the_flows_key_and_the_rest_of_a_division() {
        let balancing = Balancing::Keyed(KeyedHash::Ns3);
        let mut chooser = Chooser::new(128, balancing);
        let keys = [[0; 3], [0x0b00_0001, 0x0b00_0401, 10_001 | 100 << 16]];
        let mut choose = |hash, count| chooser.choose(balancing, Picos(0), &packet(hash), &keys, 0, count);
        assert_eq!((choose(1, 4), choose(1, 8)), (3, 3));
        assert_eq!((choose(1, 3), choose(1, 7)), (0x7f56_ad83 % 3, 0x7f56_ad83 % 7));
    }
}
