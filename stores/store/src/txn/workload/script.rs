//! One attempt at a job: the keys that it reads, their values, and the keys that it writes.

use core::ops::Range;

/// Maximum key length of a workload, in bytes.
pub const MAX_KEY: usize = 16;

/// The key of a row: at most [`MAX_KEY`] bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    bytes: [u8; MAX_KEY],
    len: u8,
}

impl Key {
    /// Returns the key with these bytes.
    ///
    /// # Panics
    /// If there are more than [`MAX_KEY`] bytes.
    pub fn of(bytes: &[u8]) -> Key {
        let mut key = Key { bytes: [0; MAX_KEY], len: bytes.len() as u8 };
        key.bytes[..bytes.len()].copy_from_slice(bytes);
        key
    }

    /// Returns the bytes of the key.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The result of reading a key.
#[derive(Clone, Debug)]
enum Found {
    /// The key was not read yet.
    Nothing,
    Absent,
    /// Range of the value in the script's bytes.
    Value(Range<usize>),
}

/// An attempt to execute a job. The attempt's memory is cleared and reused by the next attempt.
#[derive(Clone, Debug, Default)]
pub struct Script {
    reads: Vec<(Key, Found)>,
    /// Number of reads without an answer.
    waiting: usize,
    /// The keys to write, and the ranges of their new values; `None` if the key is removed.
    writes: Vec<(Key, Option<Range<usize>>)>,
    /// Values that were read or are to be written, up to `filled`. The bytes after that belong to earlier
    /// attempts.
    bytes: Vec<u8>,
    filled: usize,
    /// Amount by which the transaction changes the workload's sum if it commits.
    pub gain: i64,
}

impl Script {
    /// Clears the script for another attempt.
    pub fn clear(&mut self) {
        self.reads.clear();
        self.writes.clear();
        (self.waiting, self.gain, self.filled) = (0, 0, 0);
    }

    /// Reserves `len` more bytes; their content is undefined.
    fn reserve(&mut self, len: usize) -> Range<usize> {
        let range = self.filled..self.filled + len;
        self.filled = range.end;
        if self.bytes.len() < range.end {
            self.bytes.resize(range.end, 0);
        }
        range
    }

    /// Requests the value of a key. Returns the index of the read.
    pub fn read(&mut self, key: Key) -> usize {
        self.reads.push((key, Found::Nothing));
        self.waiting += 1;
        self.reads.len() - 1
    }

    /// Returns the number of requested keys.
    pub fn asked(&self) -> usize {
        self.reads.len()
    }

    /// Returns the key of the read with this index.
    pub fn key(&self, place: usize) -> Option<Key> {
        self.reads.get(place).map(|(key, _)| *key)
    }

    /// Stores the result of a read; `None` if the key is absent.
    pub fn found(&mut self, place: usize, value: Option<&[u8]>) {
        let known = match value {
            None => Found::Absent,
            Some(value) => {
                let range = self.reserve(value.len());
                self.bytes[range.clone()].copy_from_slice(value);
                Found::Value(range)
            }
        };
        if let Found::Nothing = std::mem::replace(&mut self.reads[place].1, known) {
            self.waiting -= 1;
        }
    }

    /// Returns true if all requested keys were read.
    pub fn is_complete(&self) -> bool {
        self.waiting == 0
    }

    /// Returns the value that was read, or `None` if the key is absent or was not read yet.
    pub fn value(&self, place: usize) -> Option<&[u8]> {
        match &self.reads.get(place)?.1 {
            Found::Value(range) => Some(&self.bytes[range.clone()]),
            Found::Nothing | Found::Absent => None,
        }
    }

    /// Writes a key. Returns the buffer of its new value, all of which must be filled.
    pub fn write(&mut self, key: Key, len: usize) -> &mut [u8] {
        let range = self.reserve(len);
        self.writes.push((key, Some(range.clone())));
        &mut self.bytes[range]
    }

    /// Removes a key.
    pub fn delete(&mut self, key: Key) {
        self.writes.push((key, None));
    }

    /// Returns the writes: each key with its new value, or `None` if the key is removed.
    pub fn writes(&self) -> impl ExactSizeIterator<Item = (&Key, Option<&[u8]>)> {
        self.writes.iter().map(|(key, range)| (key, range.as_ref().map(|range| &self.bytes[range.clone()])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_in_any_order_and_a_cleared_script_knows_nothing() {
        let mut script = Script::default();
        let one = script.read(Key::of(b"one"));
        let other = script.read(Key::of(b"other"));
        script.found(other, Some(b"2"));
        assert!(!script.is_complete() && script.value(one).is_none());
        script.found(one, None);
        assert!(script.is_complete());
        assert_eq!((script.value(one), script.value(other)), (None, Some(b"2".as_slice())));
        script.write(Key::of(b"one"), 3).copy_from_slice(b"new");
        script.delete(Key::of(b"other"));
        let writes: Vec<_> = script.writes().map(|(key, value)| (key.bytes().to_vec(), value)).collect();
        assert_eq!(writes, [(b"one".to_vec(), Some(b"new".as_slice())), (b"other".to_vec(), None)]);
        script.gain = 5;
        script.clear();
        assert_eq!((script.asked(), script.writes().len(), script.gain), (0, 0, 0));
        assert!(script.is_complete());
    }
}
