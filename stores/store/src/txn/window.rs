//! The transactions of a client, and the keys of each transaction.

use remora_transport::Status;

use super::Refused;
use super::transaction::{EntryId, Tx};
use crate::Broken;

/// The part of a key's state that the window uses.
pub(crate) trait Entry {
    /// Returns the length of the key in bytes.
    fn key_len(&self) -> u32;
}

/// The window of a client: `T` is the state of a transaction, `E` the state of one of its keys.
///
/// Keys have numbers from 0 to `window * max_keys`. The keys of a transaction are consecutive, in the order
/// in which it named them.
#[derive(Debug)]
pub(crate) struct Window<T, E> {
    pub transactions: Vec<T>,
    pub entries: Vec<E>,
    /// Number of keys that each transaction has named.
    named: Vec<u16>,
    /// The bytes of the keys, `max_key` each.
    keys: Vec<u8>,
    free: Vec<u16>,
    max_keys: u32,
    max_key: u32,
    /// The failure after which the client can no longer be used.
    pub broken: Option<Broken>,
}

impl<T: Clone + Default, E: Clone + Default + Entry> Window<T, E> {
    /// Returns a window of `window` transactions of up to `max_keys` keys, each of up to `max_key` bytes.
    pub(crate) fn new(window: u32, max_keys: u32, max_key: u32) -> Window<T, E> {
        let entries = (window * max_keys) as usize;
        Window {
            transactions: vec![T::default(); window as usize],
            entries: vec![E::default(); entries],
            named: vec![0; window as usize],
            keys: vec![0; entries * max_key as usize],
            free: (0..window as u16).rev().collect(),
            max_keys,
            max_key,
            broken: None,
        }
    }

    /// Returns the number of transactions under way.
    pub(crate) fn in_flight(&self) -> usize {
        self.transactions.len() - self.free.len()
    }

    /// Checks that no queue pair has failed.
    ///
    /// # Errors
    /// `Broken`: a queue pair has failed, and the client with it.
    pub(crate) fn usable(&self) -> Result<(), Refused> {
        self.broken.map_or(Ok(()), |broken| Err(Refused::Broken(broken)))
    }

    /// Asserts, in debug builds only, that free places have no keys and are idle; `is_idle` returns true for
    /// an idle transaction. All places are checked when no transaction is under way.
    #[inline(always)]
    pub(crate) fn checked(&self, is_idle: impl Fn(&T) -> bool) {
        if cfg!(debug_assertions) {
            self.check(is_idle);
        }
    }

    fn check(&self, is_idle: impl Fn(&T) -> bool) {
        assert!(self.free.len() <= self.transactions.len(), "free places <= window");
        let all = self.in_flight() == 0;
        let looked_at = if all { self.free.len() } else { 1 };
        for tx in self.free.iter().rev().take(looked_at).map(|tx| usize::from(*tx)) {
            assert!(is_idle(&self.transactions[tx]), "no transaction is under way at a free place");
            assert_eq!(self.named[tx], 0, "no transaction has keys at a free place");
        }
        assert!(self.named.iter().all(|named| u32::from(*named) <= self.max_keys), "keys <= max_keys");
    }

    /// Marks the client as failed.
    pub(crate) fn give_up(&mut self, status: Status) {
        self.broken.get_or_insert(Broken::Completion(status));
    }

    /// Begins a transaction in this state.
    ///
    /// # Errors
    /// `WindowFull`.
    pub(crate) fn begin(&mut self, state: T) -> Result<Tx, Refused> {
        let tx = self.free.pop().ok_or(Refused::WindowFull)?;
        self.transactions[usize::from(tx)] = state;
        Ok(Tx(tx))
    }

    /// Frees the place of a transaction that has ended.
    pub(crate) fn end(&mut self, tx: u16) {
        self.named[usize::from(tx)] = 0;
        self.free.push(tx);
    }

    /// Returns the number of a transaction's key.
    pub(crate) fn entry_index(&self, tx: u16, entry: u16) -> u32 {
        u32::from(tx) * self.max_keys + u32::from(entry)
    }

    /// Returns the numbers of all keys that a transaction has named.
    pub(crate) fn entries_of(&self, tx: u16) -> std::ops::Range<u32> {
        let first = self.entry_index(tx, 0);
        first..first + u32::from(self.named[usize::from(tx)])
    }

    /// Returns the transaction of a key, and the key's index in the transaction.
    pub(crate) fn id_of(&self, entry_index: u32) -> (Tx, EntryId) {
        (Tx((entry_index / self.max_keys) as u16), EntryId((entry_index % self.max_keys) as u16))
    }

    /// Returns true if the transaction has a key with this index.
    pub(crate) fn has(&self, tx: Tx, entry: EntryId) -> bool {
        entry.0 < self.named[tx.index()]
    }

    /// Returns the bytes of a key.
    pub(crate) fn key(&self, entry_index: u32) -> &[u8] {
        let offset = entry_index as usize * self.max_key as usize;
        &self.keys[offset..offset + self.entries[entry_index as usize].key_len() as usize]
    }

    /// Returns the number of a key that the transaction has named before.
    pub(crate) fn find(&self, tx: Tx, key: &[u8]) -> Option<u32> {
        self.entries_of(tx.0).find(|entry_index| self.key(*entry_index) == key)
    }

    /// Adds a key, at most `max_key` bytes long, to a transaction. Returns its number.
    ///
    /// # Errors
    /// `TooManyKeys`.
    pub(crate) fn add(&mut self, tx: u16, key: &[u8], state: E) -> Result<u32, Refused> {
        let entry = self.named[usize::from(tx)];
        if u32::from(entry) == self.max_keys {
            return Err(Refused::TooManyKeys);
        }
        self.named[usize::from(tx)] += 1;
        let entry_index = self.entry_index(tx, entry);
        let offset = entry_index as usize * self.max_key as usize;
        self.keys[offset..offset + key.len()].copy_from_slice(key);
        self.entries[entry_index as usize] = state;
        Ok(entry_index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Key(u32);

    impl Entry for Key {
        fn key_len(&self) -> u32 {
            self.0
        }
    }

    #[test]
    fn a_window_gives_each_transaction_its_own_keys_up_to_its_bounds() {
        let mut window: Window<(), Key> = Window::new(2, 2, 3);
        let one = window.begin(()).expect("the first");
        let two = window.begin(()).expect("the second");
        assert_eq!(window.begin(()), Err(Refused::WindowFull));
        let entry_index = window.add(two.0, b"ab", Key(2)).expect("a key");
        assert_eq!((window.find(two, b"ab"), window.find(one, b"ab")), (Some(entry_index), None));
        assert_eq!(window.id_of(entry_index), (two, EntryId(0)));
        window.add(two.0, b"abc", Key(3)).expect("another");
        assert_eq!(window.add(two.0, b"c", Key(1)), Err(Refused::TooManyKeys));
        window.end(two.0);
        assert_eq!(window.in_flight(), 1);
        let next = window.begin(()).expect("the place is free");
        assert_eq!((next, window.find(next, b"ab")), (two, None));
    }
}
