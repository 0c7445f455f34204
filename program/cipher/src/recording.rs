//! A cipher for tests that records the keys and nonces of sealed messages, and panics if a pair is used
//! twice.
//!
//! GCM loses secrecy and authenticity if a nonce is used twice under one key. Both ends of 1RMA seal under
//! the same key, and both may restart, so the ciphers of all NICs in a test share one [`Record`].

use remora_nic::rma::Cipher;
use remora_nic::rma::cipher::{IDENTITY_LEN, KEY_LEN, NONCE_LEN, TAG_LEN};
use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of calls of each function of the ciphers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Calls {
    /// Number of keys loaded.
    pub load: u64,
    /// Number of entries wiped.
    pub wipe: u64,
    /// Number of messages sealed.
    pub seal: u64,
    /// Number of messages opened or refused.
    pub open: u64,
    /// Number of keys derived.
    pub derive: u64,
}

#[derive(Default)]
struct Noted {
    pairs: HashSet<[u8; KEY_LEN + NONCE_LEN]>,
    calls: Calls,
}

/// A record of the calls to the ciphers of a test. Clones share the record.
#[derive(Clone, Default)]
pub struct Record(Arc<Mutex<Noted>>);

impl Record {
    /// Returns an empty record.
    #[must_use]
    pub fn new() -> Self {
        Record::default()
    }

    /// Returns a cipher that forwards to `cipher` and records its calls. It stores the keys unencrypted.
    pub fn wrap<C: Cipher>(&self, cipher: C) -> Recording<C> {
        let keys = vec![None; cipher.places()].into();
        Recording { cipher, keys, record: self.clone() }
    }

    /// Returns the number of recorded pairs of key and nonce.
    #[must_use]
    pub fn pairs(&self) -> usize {
        self.noted().pairs.len()
    }

    /// Returns the number of calls of each function so far.
    #[must_use]
    pub fn calls(&self) -> Calls {
        self.noted().calls
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Panics
    /// If the pair was used before.
    fn note(&self, key: &[u8; KEY_LEN], nonce: &[u8; NONCE_LEN]) {
        let mut pair = [0; KEY_LEN + NONCE_LEN];
        pair[..KEY_LEN].copy_from_slice(key);
        pair[KEY_LEN..].copy_from_slice(nonce);
        let is_new = self.noted().pairs.insert(pair);
        assert!(is_new, "sealed twice under key {} and nonce {}", Hex(key), Hex(nonce));
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noted = self.noted();
        let mut shown = f.debug_struct("Record");
        shown.field("pairs", &noted.pairs.len()).field("calls", &noted.calls).finish()
    }
}

/// A cipher that records its calls in a [`Record`].
pub struct Recording<C> {
    cipher: C,
    keys: Box<[Option<[u8; KEY_LEN]>]>,
    record: Record,
}

impl<C: Cipher> Cipher for Recording<C> {
    fn places(&self) -> usize {
        self.cipher.places()
    }

    fn load(&mut self, place: usize, key: &[u8; KEY_LEN]) {
        self.record.noted().calls.load += 1;
        self.cipher.load(place, key);
        self.keys[place] = Some(*key);
    }

    fn wipe(&mut self, place: usize) {
        self.record.noted().calls.wipe += 1;
        self.cipher.wipe(place);
        self.keys[place] = None;
    }

    fn seal(&mut self, place: usize, nonce: &[u8; NONCE_LEN], aad: &[u8], text: &mut [u8]) -> [u8; TAG_LEN] {
        self.record.noted().calls.seal += 1;
        if let Some(key) = &self.keys[place] {
            self.record.note(key, nonce);
        }
        self.cipher.seal(place, nonce, aad, text)
    }

    fn open(
        &mut self,
        place: usize,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        text: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> bool {
        self.record.noted().calls.open += 1;
        self.cipher.open(place, nonce, aad, text, tag)
    }

    fn derive(&mut self, key: &[u8; KEY_LEN], identity: &[u8; IDENTITY_LEN]) -> [u8; KEY_LEN] {
        self.record.noted().calls.derive += 1;
        self.cipher.derive(key, identity)
    }
}

impl<C: fmt::Debug> fmt::Debug for Recording<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Recording");
        shown.field("cipher", &self.cipher).field("record", &self.record).finish()
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
