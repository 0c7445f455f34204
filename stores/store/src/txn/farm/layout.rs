//! The format of an index word, an object and a log entry (`docs/internals/stores/transactions.md` draws
//! them).

use crate::kv::checksum::crc64;
use crate::words::{set_u32, set_u64, u32_at, u64_at};

/// Bytes before the record in an object, and in a log entry.
pub(crate) const WORD: usize = 8;
pub(crate) const LOG_FRONT: usize = 16;
/// Object number in the log entry of a key that has no object yet.
pub(crate) const NONE: u64 = u64::MAX;
/// Number of index words that one READ returns.
pub(crate) const NEAR: u32 = 8;
/// Bytes of a record before its key.
pub(crate) const FRONT: usize = 16;
const SUM: usize = 8;
/// `value_len` of a record whose key is absent.
const ABSENT: u32 = u32::MAX;

const VERSION_BITS: u32 = 40;
const ENTRY_BITS: u32 = 12;
/// Upper bounds, exclusive, of the number of a client's log entry and of its holder number.
pub(crate) const ENTRIES: u32 = 1 << ENTRY_BITS;
pub(crate) const HOLDERS: u32 = 1 << (64 - VERSION_BITS - ENTRY_BITS);
const LAST: u64 = (1 << VERSION_BITS) - 1;

/// Upper bound, exclusive, of an object's number.
pub(crate) const OBJECTS: u64 = u32::MAX as u64;

/// Returns an index word: the half of the key's hash that did not select the word, and the number of the
/// key's object. An index word of 0 is free.
pub(crate) fn indexed(hash: u64, object: u64) -> u64 {
    hash << 32 | (object + 1)
}

/// Returns the object to which an index word points, if its key may have this hash.
pub(crate) fn object_of(word: u64, hash: u64) -> Option<u64> {
    let alike = word >> 32 == hash & u64::from(u32::MAX);
    (word & u64::from(u32::MAX)).checked_sub(1).filter(|_| alike)
}

/// An object's first word: its version, the client that has locked it, and the entry of that client's log.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub version: u64,
    /// Number of the client that has locked the object; 0 if it is not locked.
    pub holder: u32,
    pub entry: u32,
}

impl Word {
    pub(crate) fn free(version: u64) -> Word {
        Word { version: version & LAST, holder: 0, entry: 0 }
    }

    pub(crate) fn locked(version: u64, holder: u32, entry: u32) -> Word {
        Word { version, holder, entry }
    }

    pub(crate) fn pack(self) -> u64 {
        u64::from(self.holder) << (VERSION_BITS + ENTRY_BITS)
            | u64::from(self.entry) << VERSION_BITS
            | self.version
    }

    pub(crate) fn parse(word: u64) -> Word {
        let entry = (word >> VERSION_BITS) as u32 % ENTRIES;
        Word { version: word & LAST, holder: (word >> (VERSION_BITS + ENTRY_BITS)) as u32, entry }
    }
}

/// Returns the version that follows `version`. A key has 2^40 versions.
pub(crate) fn next(version: u64) -> u64 {
    version.wrapping_add(1) & LAST
}

/// Returns the maximum length of a record whose key and value have at most `max_pair` bytes together.
pub(crate) fn record_len(max_pair: u32) -> usize {
    FRONT + max_pair as usize + SUM
}

/// Returns the bytes from one object to the next.
pub(crate) fn stride(max_pair: u32) -> usize {
    (WORD + record_len(max_pair)).next_multiple_of(64)
}

/// Returns the bytes from one log entry to the next.
pub(crate) fn log_stride(max_pair: u32) -> usize {
    (LOG_FRONT + record_len(max_pair)).next_multiple_of(64)
}

/// The front of a record: its version and lengths.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub version: u64,
    pub key_len: u32,
    /// Length of the value; `None` if the key is absent.
    pub value_len: Option<u32>,
}

impl Record {
    /// Returns the length of the record before its checksum.
    fn body(&self) -> usize {
        FRONT + self.key_len as usize + self.value_len.unwrap_or(0) as usize
    }

    /// Writes front and checksum around the key and value in `bytes`. Returns the length of the record.
    pub(crate) fn seal(&self, bytes: &mut [u8]) -> usize {
        let end = self.body();
        set_u64(bytes, 0, self.version);
        set_u32(bytes, 8, self.key_len);
        set_u32(bytes, 12, self.value_len.unwrap_or(ABSENT));
        let sum = crc64(&bytes[..end]);
        set_u64(bytes, end, sum);
        end + SUM
    }

    /// Parses the front of a record without its checksum.
    pub(crate) fn front(bytes: &[u8]) -> Record {
        let value_len = Some(u32_at(bytes, 12)).filter(|len| *len != ABSENT);
        Record { version: u64_at(bytes, 0), key_len: u32_at(bytes, 8), value_len }
    }

    /// Parses a record. Returns `None` if its checksum is wrong.
    pub(crate) fn unseal(bytes: &[u8]) -> Option<Record> {
        let record = Record::front(bytes.get(..FRONT)?);
        let end = record.body();
        let sum = bytes.get(end..end + SUM)?;
        (u64_at(sum, 0) == crc64(&bytes[..end])).then_some(record)
    }

    /// Returns the length of the record with its checksum.
    pub(crate) fn len(&self) -> usize {
        self.body() + SUM
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_as_they_went() {
        for word in [Word::free(LAST), Word::locked(7, HOLDERS - 1, ENTRIES - 1), Word::locked(LAST, 1, 0)] {
            assert_eq!(Word::parse(word.pack()), word);
        }
        assert_eq!((next(0), next(LAST)), (1, 0));
    }

    #[test]
    fn a_word_of_the_index_leads_whoever_has_the_hash_to_the_object() {
        let hash = 0x1234_5678_9abc_def0;
        for object in [0, 1, OBJECTS - 1] {
            let word = indexed(hash, object);
            assert_eq!((object_of(word, hash), object_of(word, hash ^ 1)), (Some(object), None));
            assert_eq!(object_of(word, hash ^ 1 << 40), Some(object), "the other half chose the place");
        }
        assert_eq!((object_of(0, 0), object_of(0, hash)), (None, None));
    }

    #[test]
    fn half_a_record_over_another_is_seen() {
        let sealed = |byte, version, value_len| {
            let mut bytes = vec![byte; record_len(60)];
            let len = Record { version, key_len: 4, value_len: Some(value_len) }.seal(&mut bytes);
            bytes.truncate(len);
            bytes
        };
        let old = sealed(1, 5, 56);
        let new = sealed(2, 6, 40);
        assert_eq!(Record::unseal(&new).map(|record| record.version), Some(6));
        for cut in 1..new.len() {
            let torn = [&new[..cut], &old[cut..]].concat();
            let known = Record::unseal(&torn);
            assert!(known.is_none() || torn == old || cut == new.len(), "cut at {cut}");
        }
        assert!((0..new.len()).all(|len| Record::unseal(&new[..len]).is_none()));
        let mut long = new;
        set_u32(&mut long, 8, u32::MAX - 1);
        assert_eq!(Record::unseal(&long), None, "lengths beyond the object");
    }
}
