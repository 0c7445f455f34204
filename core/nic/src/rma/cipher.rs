//! The seam to the cipher: AES-128-GCM and AES-CMAC are handed in, so that this crate has no cryptography of
//! its own (`program/cipher` has the one that ships).

/// Bytes of a key: AES-128.
pub const KEY_LEN: usize = 16;
/// Bytes of an authentication tag.
pub const TAG_LEN: usize = 16;
/// Bytes of a nonce.
pub const NONCE_LEN: usize = 12;
/// Bytes from which a key is derived: two AES blocks.
pub const IDENTITY_LEN: usize = 32;

/// Seals, opens and derives under keys whose schedules stand in a table of fixed size. The caller decides
/// which key stands at which place, and never allocates by any call.
pub trait Cipher: Send {
    /// Places of the table of key schedules.
    fn places(&self) -> usize;

    /// Expands `key` and puts its schedule at `place`. The schedule that was there is wiped.
    ///
    /// # Panics
    /// If there is no such place.
    fn load(&mut self, place: usize, key: &[u8; KEY_LEN]);

    /// Wipes the schedule at `place`. Until the next [`load`](Cipher::load) nothing opens there.
    fn wipe(&mut self, place: usize);

    /// Encrypts `text` in place under the key at `place`, authenticates it and `aad`, and returns the tag.
    ///
    /// # Panics
    /// If there is no key at `place`.
    fn seal(&mut self, place: usize, nonce: &[u8; NONCE_LEN], aad: &[u8], text: &mut [u8]) -> [u8; TAG_LEN];

    /// Checks the tag of `aad` and `text` under the key at `place`, and decrypts `text` in place. False: the
    /// tag is wrong or there is no key; what stands in `text` is then undefined and must not be used.
    fn open(
        &mut self,
        place: usize,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        text: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> bool;

    /// AES-CMAC (RFC 4493) of `identity` under `key`: a derived key.
    fn derive(&mut self, key: &[u8; KEY_LEN], identity: &[u8; IDENTITY_LEN]) -> [u8; KEY_LEN];
}
