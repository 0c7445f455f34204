//! The table of key schedules, and the operations with them.

use aes::Aes128;
use cmac::{Cmac, KeyInit, Mac};
use remora_nic::rma::Cipher;
use remora_nic::rma::cipher::{IDENTITY_LEN, KEY_LEN, NONCE_LEN, TAG_LEN};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use std::fmt;
use zeroize::optimization_barrier;

/// Key whose schedule fills entries without a key.
const BLANK: [u8; KEY_LEN] = [0; KEY_LEN];

#[derive(Clone)]
struct Place {
    schedule: LessSafeKey,
    /// False if the schedule is that of [`BLANK`].
    loaded: bool,
}

/// AES-128-GCM with a table of key schedules of fixed size, and AES-CMAC.
///
/// The table is allocated once, with 560 bytes per entry. `open` at an empty entry fails, but takes as long
/// as at a loaded one, so its time does not reveal whether a key is loaded.
pub struct Aes {
    places: Box<[Place]>,
}

impl Aes {
    /// Returns a table of `places` empty entries.
    #[must_use]
    pub fn new(places: usize) -> Self {
        let blank = Place { schedule: expand(&BLANK), loaded: false };
        Aes { places: vec![blank; places].into() }
    }
}

impl Cipher for Aes {
    fn places(&self) -> usize {
        self.places.len()
    }

    fn load(&mut self, place: usize, key: &[u8; KEY_LEN]) {
        self.places[place].put(key, true);
        scrub_stack();
    }

    fn wipe(&mut self, place: usize) {
        self.places[place].put(&BLANK, false);
        scrub_stack();
    }

    fn seal(&mut self, place: usize, nonce: &[u8; NONCE_LEN], aad: &[u8], text: &mut [u8]) -> [u8; TAG_LEN] {
        let Place { schedule, loaded } = &self.places[place];
        assert!(loaded, "no key at place {place}");
        tag(schedule, nonce, aad, text)
    }

    fn open(
        &mut self,
        place: usize,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        text: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> bool {
        let Place { schedule, loaded } = &self.places[place];
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened =
            schedule.open_in_place_separate_tag(nonce, Aad::from(aad), Tag::from(*tag), text, 0..).is_ok();
        // The key of an empty entry is public, so a valid tag proves nothing.
        opened && *loaded
    }

    fn derive(&mut self, key: &[u8; KEY_LEN], identity: &[u8; IDENTITY_LEN]) -> [u8; KEY_LEN] {
        let derived = cmac(key, identity);
        scrub_stack();
        derived
    }
}

impl Drop for Aes {
    fn drop(&mut self) {
        (0..self.places.len()).for_each(|place| self.wipe(place));
    }
}

impl fmt::Debug for Aes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let loaded = self.places.iter().filter(|place| place.loaded).count();
        f.debug_struct("Aes").field("places", &self.places.len()).field("loaded", &loaded).finish()
    }
}

impl Place {
    /// Replaces the schedule. Never inlined, so that all copies of the schedule are below the caller's stack
    /// frame.
    #[inline(never)]
    fn put(&mut self, key: &[u8; KEY_LEN], loaded: bool) {
        *self = Place { schedule: expand(key), loaded };
        optimization_barrier(self);
    }
}

fn expand(key: &[u8; KEY_LEN]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key).expect("16 bytes are a key of AES-128"))
}

/// Number of stack bytes in which a key set-up or a derivation may leave parts of a key.
const SCRUBBED: usize = 8192;

/// Overwrites the stack below the caller's frame, where moved values have left copies.
#[inline(never)]
fn scrub_stack() {
    optimization_barrier(&[0_u8; SCRUBBED]);
}

fn tag(schedule: &LessSafeKey, nonce: &[u8; NONCE_LEN], aad: &[u8], text: &mut [u8]) -> [u8; TAG_LEN] {
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let sealed = schedule.seal_in_place_separate_tag(nonce, Aad::from(aad), text);
    let mut tag = [0; TAG_LEN];
    tag.copy_from_slice(sealed.expect("a text is shorter than 64 GiB").as_ref());
    tag
}

/// Computes the CMAC of a message (RFC 4493). Never inlined, like [`Place::put`].
#[inline(never)]
fn cmac(key: &[u8; KEY_LEN], message: &[u8]) -> [u8; TAG_LEN] {
    let mut mac = Cmac::<Aes128>::new(key.into());
    mac.update(message);
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hex_literal::hex;

    const KEY: [u8; KEY_LEN] = hex!("2b7e151628aed2a6abf7158809cf4f3c");
    const MESSAGE: [u8; 64] = hex!(
        "6bc1bee22e409f96e93d7e117393172a ae2d8a571e03ac9c9eb76fac45af8e51
         30c81c46a35ce411e5fbc1191a0a52ef f69f2445df4f9b17ad2b417be66c3710"
    );

    #[test]
    fn the_examples_of_rfc_4493() {
        assert_eq!(cmac(&KEY, &MESSAGE[..0]), hex!("bb1d6929e95937287fa37d129b756746"));
        assert_eq!(cmac(&KEY, &MESSAGE[..16]), hex!("070a16b46b4d4144f79bdd9dd04a287c"));
        assert_eq!(cmac(&KEY, &MESSAGE[..40]), hex!("dfa66747de9ae63030ca32611497c827"));
        assert_eq!(cmac(&KEY, &MESSAGE), hex!("51f0bebf7e3b9d92fc49741779363cfe"));
    }

    /// Seals with the schedule of an entry, even if no key is loaded.
    fn sealed(place: &Place) -> [u8; TAG_LEN] {
        tag(&place.schedule, &[1; NONCE_LEN], b"", &mut [])
    }

    #[test]
    fn a_wiped_place_holds_the_schedule_of_the_key_of_zeros() {
        let mut aes = Aes::new(2);
        let blank = sealed(&aes.places[0]);
        aes.load(0, &KEY);
        aes.load(1, &KEY);
        assert_ne!(sealed(&aes.places[0]), blank);
        aes.wipe(0);
        assert_eq!(sealed(&aes.places[0]), blank);
        assert_ne!(sealed(&aes.places[1]), blank);
    }

    #[test]
    fn a_place_is_as_large_as_the_documentation_says() {
        assert!(size_of::<Place>() <= 560, "{}", size_of::<Place>());
    }
}
