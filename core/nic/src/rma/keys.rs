//! Keys: derived per identity, expanded once, and cached in tables of fixed size.
//!
//! The tables are only caches: every entry can be computed again. So the state of a server does not grow with
//! the number of its initiators.

use remora_wire::frame::Address;
use remora_wire::rma::Kind;

use super::cipher::{Cipher, IDENTITY_LEN, KEY_LEN};

/// The reserved key, known to everybody, for the one message to initiators without a valid key: the
/// authentication failure (1RMA paper, §4.2).
pub const RESERVED_KEY: [u8; KEY_LEN] = *b"1RMA reserved ky";

/// The input from which K_d is derived: the initiator and the kind of operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The initiator's address.
    pub address: Address,
    /// Process id, as the initiator's NIC knows it.
    pub pid: u32,
    /// Random number of the start of the initiator's NIC, or of the program's attachment.
    pub incarnation: u32,
    /// Read, write or rekey.
    pub kind: Kind,
}

impl Identity {
    /// `"1RM1" | address | PID | incarnation | op | 0 0 0`.
    pub fn bytes(&self) -> [u8; IDENTITY_LEN] {
        let mut bytes = [0; IDENTITY_LEN];
        bytes[..4].copy_from_slice(b"1RM1");
        bytes[4..20].copy_from_slice(&self.address.0);
        bytes[20..24].copy_from_slice(&self.pid.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.incarnation.to_be_bytes());
        bytes[28] = self.kind as u8 & 7;
        bytes
    }
}

/// A derived key, with the input of its derivation.
#[derive(Clone)]
struct Derived {
    region: u32,
    epoch: u64,
    identity: [u8; IDENTITY_LEN],
    key: [u8; KEY_LEN],
}

/// The cipher, and the assignment of keys to its table entries.
pub(crate) struct Keys {
    cipher: Box<dyn Cipher>,
    /// Key in each entry of the cipher; the last entry holds the reserved key.
    loaded: Vec<[u8; KEY_LEN]>,
    derived: Vec<Option<Derived>>,
    /// Number of key derivations; `expansions` is the number of key expansions.
    pub derivations: u64,
    pub expansions: u64,
}

impl Keys {
    /// # Panics
    /// If the cipher has fewer than two places.
    pub(crate) fn new(mut cipher: Box<dyn Cipher>) -> Keys {
        let places = cipher.places();
        assert!(places >= 2, "a place for the reserved key and one for others");
        cipher.load(places - 1, &RESERVED_KEY);
        Keys {
            cipher,
            loaded: vec![[0; KEY_LEN]; places - 1],
            derived: vec![None; places - 1],
            derivations: 0,
            expansions: 0,
        }
    }

    /// Returns the entry of the reserved key.
    pub(crate) fn reserved(&self) -> usize {
        self.loaded.len()
    }

    pub(crate) fn cipher(&mut self) -> &mut dyn Cipher {
        &mut *self.cipher
    }

    /// Returns K_d of an identity for a region with this key and epoch.
    pub(crate) fn derive(
        &mut self,
        region: u32,
        epoch: u64,
        region_key: &[u8; KEY_LEN],
        identity: &Identity,
    ) -> [u8; KEY_LEN] {
        let identity = identity.bytes();
        let (words, _) = identity.as_chunks::<8>();
        let mixed = words.iter().fold(u64::from(region) ^ epoch << 32, |mixed, word| {
            (mixed ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
        });
        let places = self.derived.len();
        let place = &mut self.derived[scaled(mixed, places)];
        if let Some(known) = place
            && known.region == region
            && known.epoch == epoch
            && known.identity == identity
        {
            return known.key;
        }
        let key = self.cipher.derive(region_key, &identity);
        self.derivations += 1;
        *place = Some(Derived { region, epoch, identity, key });
        key
    }

    /// Returns the cipher entry of this key, and loads the key if necessary. The entry is valid until another
    /// key replaces it.
    pub(crate) fn place(&mut self, key: &[u8; KEY_LEN]) -> usize {
        let (words, _) = key.as_chunks::<8>();
        let mixed =
            (u64::from_le_bytes(words[0]) ^ u64::from_le_bytes(words[1])).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = scaled(mixed, self.loaded.len());
        if self.loaded[place] != *key || *key == [0; KEY_LEN] {
            self.cipher.load(place, key);
            self.expansions += 1;
            self.loaded[place] = *key;
        }
        place
    }

    /// Removes all derived keys of a region, because its key has changed or the region is gone.
    pub(crate) fn forget(&mut self, region: u32) {
        for place in 0..self.derived.len() {
            let Some(known) = self.derived[place].take_if(|known| known.region == region) else { continue };
            if let Some(place) = self.loaded.iter().position(|loaded| *loaded == known.key) {
                self.cipher.wipe(place);
                self.loaded[place] = [0; KEY_LEN];
            }
        }
    }

    /// Returns the size of the tables in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.loaded.capacity() * KEY_LEN + self.derived.capacity() * size_of::<Option<Derived>>()
    }
}

/// Maps the upper half of a hash to an index below `places`, by a multiplication instead of a slower
/// division.
fn scaled(hash: u64, places: usize) -> usize {
    (((hash >> 32) * places as u64) >> 32) as usize
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.loaded.iter_mut().for_each(|key| wipe(key));
    }
}

impl Drop for Derived {
    fn drop(&mut self) {
        wipe(&mut self.key);
    }
}

/// Overwrites memory that holds a key. `black_box` prevents the compiler from removing the stores.
pub(super) fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    std::hint::black_box(bytes);
}
