//! The interface to the cipher: AES-128-GCM and AES-CMAC are provided by the driver, so that this crate
//! contains no cryptography. Remora's implementation is in `program/cipher`.

/// Size of a key in bytes: AES-128.
pub const KEY_LEN: usize = 16;
/// Size of an authentication tag in bytes.
pub const TAG_LEN: usize = 16;
/// Size of a nonce in bytes.
pub const NONCE_LEN: usize = 12;
/// Size in bytes of the input of key derivation: two AES blocks.
pub const IDENTITY_LEN: usize = 32;

/// Authenticated encryption and key derivation with a fixed-size table of expanded keys. The caller assigns
/// keys to table entries. No call allocates memory.
pub trait Cipher: Send {
    /// Returns the number of entries in the table of expanded keys.
    fn places(&self) -> usize;

    /// Expands `key` into entry `place`. The previous key of the entry is wiped.
    ///
    /// # Panics
    /// If the entry does not exist.
    fn load(&mut self, place: usize, key: &[u8; KEY_LEN]);

    /// Wipes the key in entry `place`. Until the next [`load`](Cipher::load), `open` fails for this entry.
    fn wipe(&mut self, place: usize);

    /// Encrypts `text` in place with the key in entry `place`, and returns the authentication tag of `aad`
    /// and the ciphertext.
    ///
    /// # Panics
    /// If the entry has no key.
    fn seal(&mut self, place: usize, nonce: &[u8; NONCE_LEN], aad: &[u8], text: &mut [u8]) -> [u8; TAG_LEN];

    /// Verifies the tag of `aad` and `text` with the key in entry `place`, and decrypts `text` in place.
    /// Returns false if the tag is wrong or the entry has no key; `text` is then undefined and must not be
    /// used.
    fn open(
        &mut self,
        place: usize,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        text: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> bool;

    /// Returns the key derived from `key` and `identity`: AES-CMAC (RFC 4493) of `identity` under `key`.
    fn derive(&mut self, key: &[u8; KEY_LEN], identity: &[u8; IDENTITY_LEN]) -> [u8; KEY_LEN];
}
