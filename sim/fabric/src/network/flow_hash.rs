//! ECMP hashes: Remora's own, and those of other simulators.

/// The hash function of another simulator.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum KeyedHash {
    /// The hash of HPCC's and ConWeave's ns-3 programs: MurmurHash3 of both addresses and both UDP ports,
    /// seeded by the node number of the switch.
    Ns3,
    /// htsim's hash: Jenkins' mix of flow id, path number and a salt of the switch. htsim draws the salts
    /// from the C library's random numbers; here they come from the seed.
    Htsim,
}

/// The input of [`KeyedHash`] for a flow: addresses and ports, or flow id and path number.
pub type FlowKey = [u32; 3];

impl KeyedHash {
    /// Returns the hash of a flow at a switch with this salt.
    #[inline]
    pub fn of(self, key: FlowKey, salt: u32) -> u32 {
        match self {
            KeyedHash::Ns3 => murmur3(key, salt),
            KeyedHash::Htsim => jenkins(key[0], key[1], salt),
        }
    }

    /// Returns the hash of a flow at a host with several links. The ns-3 programs seed it equally for all
    /// hosts.
    pub fn of_host(self, key: FlowKey, node: u32) -> u32 {
        match self {
            KeyedHash::Ns3 => murmur3(key, NS3_HOST_SEED),
            KeyedHash::Htsim => jenkins(key[0], key[1], mix(node + 1)),
        }
    }
}

/// Seed of ns-3's `Hash32`, with which ns-3's `RdmaHw` chooses among the NICs of a host.
const NS3_HOST_SEED: u32 = 0x8bad_f00d;

/// The finalizer of MurmurHash3: every input bit affects every output bit.
#[inline]
pub fn mix(mut bits: u32) -> u32 {
    bits = (bits ^ bits >> 16).wrapping_mul(0x85eb_ca6b);
    bits = (bits ^ bits >> 13).wrapping_mul(0xc2b2_ae35);
    bits ^ bits >> 16
}

/// Returns Remora's hash of a flow: host numbers and UDP ports.
pub fn flow_hash(source: u32, destination: u32, source_port: u16, destination_port: u16) -> u32 {
    let ports = u32::from(source_port) | u32::from(destination_port) << 16;
    mix(mix(mix(source).wrapping_add(destination)).wrapping_add(ports))
}

/// MurmurHash3 (32 bits) of three words.
fn murmur3(words: [u32; 3], seed: u32) -> u32 {
    let scrambled = |word: u32| word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let state = words.into_iter().fold(seed, |state, word| {
        (state ^ scrambled(word)).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
    });
    mix(state ^ size_of_val(&words) as u32)
}

/// Jenkins' mix of three words (Dr. Dobb's Journal, September 1997). Two of them are offset by the golden
/// ratio.
fn jenkins(flow: u32, path: u32, salt: u32) -> u32 {
    const GOLDEN_RATIO: u32 = 0x9e37_79b9;
    let mut a = GOLDEN_RATIO.wrapping_add(flow);
    let mut b = GOLDEN_RATIO.wrapping_add(salt);
    let mut c = path;
    for [of_a, of_b, of_c] in [[13, 8, 13], [12, 16, 5], [3, 10, 15]] {
        a = a.wrapping_sub(b).wrapping_sub(c) ^ c >> of_a;
        b = b.wrapping_sub(c).wrapping_sub(a) ^ a << of_b;
        c = c.wrapping_sub(a).wrapping_sub(b) ^ b >> of_c;
    }
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_hashes() {
        assert_eq!((mix(0), mix(1), mix(0xdead_beef)), (0, 0x514e_28b7, 0x0de5_c6a9));
        assert_ne!(flow_hash(1, 2, 3, 4), flow_hash(2, 1, 3, 4));
    }

    #[test]
    fn literal_hashes_of_the_ns3_programs() {
        let hash = |key, salt| KeyedHash::Ns3.of(key, salt);
        assert_eq!((hash([0; 3], 0), hash([1, 2, 3], 0)), (0xd941_144b, 0xe9d7_8ad6));
        // From 11.0.0.1 to 11.0.4.1, ports 10001 and 100, at node 128.
        let key = [0x0b00_0001, 0x0b00_0401, 10_001 | 100 << 16];
        assert_eq!(hash(key, 128), 0x7f56_ad83);
        assert_eq!(KeyedHash::Ns3.of_host(key, 1), hash(key, 0x8bad_f00d));
    }

    #[test]
    fn literal_hashes_of_htsim() {
        let hash = |flow, path, salt| KeyedHash::Htsim.of([flow, path, 0], salt);
        assert_eq!((hash(0, 0, 0), hash(1, 2, 3)), (0xbd49_d10d, 0x70a7_c041));
        assert_eq!(hash(0xdead_beef, 7, 0x1234_5678), 0xba7f_a286);
    }
}
