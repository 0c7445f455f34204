//! Memory keys: how a key names an entry of the table, and why keys cannot be guessed.
//!
//! A key is `tag | location | tag`: the middle bits are the index of the table's entry, and the other bits
//! must equal the tag in the entry. The lowest eight bits belong to the tag, because a program may change
//! them when it binds a memory window (`ibv_inc_rkey`); the entry stays the same.
//!
//! Both parts come out of keyed permutations. The n-th fresh location is a permutation of n. The tag is a
//! permutation, different for each location, of the number of times the location was used. So the map from
//! (n, use) to keys is one to one: a key is issued a second time only after its location went through all
//! its tags, and a location is reused only after all fresh locations and all those freed before it. Looking
//! up a key needs no permutation, only one masked load.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The local and remote key of a region: one value, as on mlx5. Never zero.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Key(pub(crate) u32);

impl Key {
    /// Wraps a key as it came from a work request or from the wire.
    pub const fn new(bits: u32) -> Key {
        Key(bits)
    }

    /// Returns the key as 32 bits.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the key with its low eight bits incremented (`ibv_inc_rkey`): the key under which a window
    /// can be bound next.
    pub const fn next(self) -> Key {
        Key(self.0 & !OWN | self.0.wrapping_add(1) & OWN)
    }

    /// Returns this key with the low eight bits of `chosen`: the key that a window gets when it is bound
    /// under `chosen`.
    pub const fn with_own_bits_of(self, chosen: Key) -> Key {
        Key(self.0 & !OWN | chosen.0 & OWN)
    }

    /// Returns all bits except the low eight, which a program may change. They identify a window.
    pub(crate) const fn index(self) -> u32 {
        self.0 >> OWN_BITS
    }
}

/// Number of low bits of a key that a program may change.
const OWN_BITS: u32 = 8;
const OWN: u32 = (1 << OWN_BITS) - 1;

/// Returns the index of the entry that a key points to, in a table of `locations` entries (a power of two).
#[inline(always)]
pub(crate) const fn location(key: Key, locations: usize) -> usize {
    (key.0 >> OWN_BITS) as usize & (locations - 1)
}

/// Issues keys and takes them back.
#[derive(Debug)]
pub(crate) struct Keyring {
    seed: u64,
    location_bits: u32,
    fresh: u32,
    /// Locations that were given back, each with the number of times that it was used.
    freed: VecDeque<(u32, u32)>,
}

/// A key that was issued and must be given back.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Issued {
    pub key: Key,
    /// Number of times that the key's location was used before.
    turn: u32,
}

impl Issued {
    /// Returns a key that the keyring of another table issued.
    pub(crate) fn repeated(key: Key) -> Issued {
        Issued { key, turn: 0 }
    }
}

impl Keyring {
    /// Creates a keyring for up to `capacity` keys at a time.
    pub(crate) fn new(capacity: usize, seed: u64) -> Keyring {
        // One location more, because location 0 stays empty: key 0 then finds nothing.
        let locations = (capacity + 1).next_power_of_two().max(16);
        Keyring { seed, location_bits: locations.trailing_zeros(), fresh: 0, freed: VecDeque::new() }
    }

    /// Returns the number of locations, a power of two.
    pub(crate) fn locations(&self) -> usize {
        1 << self.location_bits
    }

    /// Returns the next key, or `None` when all locations are taken.
    pub(crate) fn take(&mut self) -> Option<Issued> {
        let fresh = self.fresh_location().map(|location| (location, 0));
        let (location, turn) = fresh.or_else(|| self.freed.pop_front())?;
        let tag_bits = 32 - self.location_bits;
        let round_key = self.seed ^ (u64::from(location) + 1) << 32;
        let tag = permute(turn & mask(tag_bits), tag_bits, round_key);
        let high = u64::from(tag >> OWN_BITS) << (self.location_bits + OWN_BITS);
        Some(Issued { key: Key(high as u32 | location << OWN_BITS | tag & OWN), turn })
    }

    /// Takes a key back. Its location is used again after all locations that are free now.
    pub(crate) fn give_back(&mut self, issued: Issued) {
        let location = location(issued.key, self.locations()) as u32;
        self.freed.push_back((location, issued.turn.wrapping_add(1)));
    }

    fn fresh_location(&mut self) -> Option<u32> {
        while (self.fresh as usize) < self.locations() {
            let location = permute(self.fresh, self.location_bits, self.seed);
            self.fresh += 1;
            if location != 0 {
                return Some(location);
            }
        }
        None
    }
}

const fn mask(bits: u32) -> u32 {
    ((1u64 << bits) - 1) as u32
}

/// Returns the image of `value` in a keyed permutation of the numbers below 2^bits (1 <= bits <= 32): eight
/// Feistel rounds, whose round function is a mix like SipHash. An odd width is permuted in the next even
/// width, repeatedly until the result is small enough; that ends because every cycle of a permutation leads
/// back.
pub fn permute(value: u32, bits: u32, key: u64) -> u32 {
    let half = bits.div_ceil(2);
    let mut value = value;
    loop {
        let mut left = value >> half;
        let mut right = value & mask(half);
        for round in 0..8 {
            let mixed = mix(key, u64::from(right) << 8 | round) as u32 & mask(half);
            (left, right) = (right, left ^ mixed);
        }
        value = left << half | right;
        if value <= mask(bits) {
            return value;
        }
    }
}

/// Returns a keyed hash of one word: two SipHash rounds in, four out (Aumasson and Bernstein 2012). The
/// 64-bit seed is spread over both halves of the SipHash key.
fn mix(key: u64, word: u64) -> u64 {
    let second = key.rotate_left(32) ^ 0x9e37_79b9_7f4a_7c15;
    let mut v = [
        key ^ 0x736f_6d65_7073_6575,
        second ^ 0x646f_7261_6e64_6f6d,
        key ^ 0x6c79_6765_6e65_7261,
        second ^ 0x7465_6462_7974_6573,
    ];
    v[3] ^= word;
    for round in 0..6 {
        if round == 2 {
            v[0] ^= word;
            v[2] ^= 0xff;
        }
        v[0] = v[0].wrapping_add(v[1]);
        v[2] = v[2].wrapping_add(v[3]);
        v[1] = v[1].rotate_left(13) ^ v[0];
        v[3] = v[3].rotate_left(16) ^ v[2];
        v[0] = v[0].rotate_left(32).wrapping_add(v[3]);
        v[2] = v[2].wrapping_add(v[1]);
        v[3] = v[3].rotate_left(21) ^ v[0];
        v[1] = v[1].rotate_left(17) ^ v[2];
        v[2] = v[2].rotate_left(32);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

// Not under Miri: nothing here is unsafe, and Miri needs minutes for the arithmetic.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn every_width_is_permuted_one_to_one() {
        for bits in 1..=13 {
            for seed in [0, 1, u64::MAX] {
                let mut hit = vec![false; 1 << bits];
                for value in 0..1 << bits {
                    let image = permute(value, bits, seed) as usize;
                    assert!(
                        !std::mem::replace(&mut hit[image], true),
                        "{bits} bits, seed {seed}: {image} twice"
                    );
                }
            }
        }
    }

    #[test]
    fn one_seed_gives_one_sequence_and_another_seed_another() {
        let sequence = |seed| {
            let mut ring = Keyring::new(100, seed);
            (0..100).map(|_| ring.take().unwrap().key.get()).collect::<Vec<_>>()
        };
        assert_eq!(sequence(5), sequence(5));
        let same = sequence(5).iter().zip(sequence(6)).filter(|(a, b)| **a == *b).count();
        assert!(same < 3, "{same} of 100 keys are the same under another seed");
    }

    /// An eavesdropper might look at the difference between one key and the next.
    #[test]
    fn keys_do_not_follow_from_the_keys_before() {
        let mut ring = Keyring::new(1, 9);
        let keys: Vec<u32> = (0..200)
            .map(|_| {
                let key = ring.take().unwrap();
                ring.give_back(key);
                key.key.get()
            })
            .collect();
        let mut steps: Vec<u32> = keys.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
        steps.sort_unstable();
        steps.dedup();
        assert!(steps.len() > 195, "only {} different steps", steps.len());
        // Each bit is set about half of the time: 200 coin tosses leave 60..140 only once in 10^8.
        for bit in 0..32 {
            let set = keys.iter().filter(|key| **key >> bit & 1 == 1).count();
            assert!((60..140).contains(&set), "bit {bit} is set in {set} of 200 keys");
        }
    }

    #[test]
    fn a_place_rests_as_long_as_others_are_free() {
        let mut ring = Keyring::new(15, 3);
        assert_eq!(ring.locations(), 16);
        let place = |issued: Issued| issued.key.get() >> 8 & 15;
        let mut seen = Vec::new();
        for _ in 0..45 {
            let key = ring.take().unwrap();
            seen.push(place(key));
            ring.give_back(key);
        }
        assert!(seen.iter().all(|place| *place != 0), "location 0 must stay empty: key 0 finds nothing");
        assert!((15..45).all(|at| seen[at] == seen[at - 15]), "first in, first out");
        let all: Vec<_> = (0..15).map(|_| ring.take().unwrap()).collect();
        assert_eq!(ring.take(), None);
        ring.give_back(all[4]);
        let next = ring.take().unwrap();
        assert_eq!(place(next), place(all[4]));
        assert_ne!(next.key, all[4].key);
    }

    #[test]
    fn a_key_comes_back_only_after_all_tags_of_its_place() {
        // 2^24 regions leave eight bits of tag: the worst case.
        let mut ring = Keyring::new((1 << 24) - 1, 3);
        let first = ring.take().unwrap();
        ring.fresh = 1 << 24;
        let mut seen = vec![first.key];
        ring.give_back(first);
        for _ in 1..256 {
            let key = ring.take().unwrap();
            assert!(!seen.contains(&key.key));
            seen.push(key.key);
            ring.give_back(key);
        }
        assert_eq!(ring.take().unwrap().key, first.key);
    }

    #[test]
    fn a_chosen_key_changes_the_programs_own_bits_alone() {
        let window = Key::new(0x1234_5678);
        assert_eq!(window.with_own_bits_of(Key::new(0xffff_ff17)), Key::new(0x1234_5617));
        assert_eq!(window.with_own_bits_of(Key::new(0)), Key::new(0x1234_5600));
        assert_eq!(window.with_own_bits_of(window.next()), window.next());
    }

    #[test]
    fn the_next_key_of_a_window_is_at_the_same_place() {
        assert_eq!(Key::new(0x1234_56ff).next(), Key::new(0x1234_5600));
        assert_eq!(Key::new(u32::MAX).next(), Key::new(0xffff_ff00));
        let mut key = Keyring::new(1 << 16, 4).take().unwrap().key;
        let place = location(key, 1 << 17);
        for _ in 0..300 {
            key = key.next();
            assert_eq!(location(key, 1 << 17), place);
        }
    }
}
