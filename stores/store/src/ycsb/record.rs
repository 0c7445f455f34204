//! The bytes of a record: keys as YCSB writes them, and values that can be verified.
//!
//! A value is a function of the record's number and its *version*. An update increments the version. The
//! value begins with both, if it is long enough. So a reader who knows the record can tell whether the bytes
//! are one of its values, and which.

use super::zipfian::fnv;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Length of a key in bytes: `user` and twenty digits.
pub const KEY_LEN: usize = 24;

/// The number of a record, from 0.
pub type Record = u64;

/// Returns the key of a record: `user` and the FNV hash of its number with twenty digits, as in YCSB's
/// hashed insert order with zero padding.
pub fn key(record: Record) -> [u8; KEY_LEN] {
    let mut out = *b"user00000000000000000000";
    let mut rest = fnv(record);
    for digit in out[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out
}

/// The range of value lengths.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Values {
    /// Minimum length in bytes.
    pub shortest: u32,
    /// Maximum length in bytes. All versions of a record have the same length; lengths are uniform between
    /// minimum and maximum.
    pub longest: u32,
}

impl Values {
    /// Returns the range of a single length.
    pub fn fixed(len: u32) -> Values {
        Values { shortest: len, longest: len }
    }

    /// Returns the length of a record's values in bytes.
    pub fn len(&self, record: Record) -> usize {
        let span = u64::from(self.longest.saturating_sub(self.shortest)) + 1;
        if span == 1 {
            return self.shortest as usize;
        }
        self.shortest as usize + (xxh3_64_with_seed(&record.to_le_bytes(), 1) % span) as usize
    }

    /// Writes the value of a record at a version into the beginning of `out`, and returns its length.
    ///
    /// # Panics
    /// If `out` is shorter than [`Values::longest`].
    pub fn fill(&self, record: Record, version: u64, out: &mut [u8]) -> usize {
        let len = self.len(record);
        fill(record, version, &mut out[..len]);
        len
    }

    /// Returns the version of a record whose value is `value`, or `None` if it is not a value of the record.
    /// A value shorter than 16 bytes has only a part of the version (nothing below 9 bytes); the missing
    /// bits read as zero.
    pub fn check(&self, record: Record, value: &[u8]) -> Option<u64> {
        if value.len() != self.len(record) {
            return None;
        }
        let mut version = [0; 8];
        let known = value.get(8..).unwrap_or_default();
        let known = &known[..known.len().min(8)];
        version[..known.len()].copy_from_slice(known);
        let version = u64::from_le_bytes(version);
        is_filled(record, version, value).then_some(version)
    }
}

/// The words of a value after record and version. Each version begins at another word, and all continue in
/// equal steps.
///
/// A benchmark creates and checks one value per operation, so that must be cheap. The vector unit of a CPU
/// adds 64-bit words, but does not multiply them.
#[derive(Clone)]
struct Pattern(u64);

impl Pattern {
    fn of(record: Record, version: u64) -> Pattern {
        let mixed = (record ^ version.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Pattern(mixed ^ mixed >> 29)
    }
}

impl Iterator for Pattern {
    type Item = u64;

    #[inline(always)]
    fn next(&mut self) -> Option<u64> {
        let word = self.0;
        self.0 = word.wrapping_add(0xd6e8_feb8_6659_fd93);
        Some(word)
    }
}

/// Returns the first two words of a value.
fn names(record: Record, version: u64) -> [[u8; 8]; 2] {
    [record.to_le_bytes(), version.to_le_bytes()]
}

fn fill(record: Record, version: u64, out: &mut [u8]) {
    let named = out.len().min(16);
    let (head, rest) = out.split_at_mut(named);
    head.copy_from_slice(&names(record, version).as_flattened()[..named]);
    let (pieces, last) = rest.as_chunks_mut::<8>();
    let mut words = Pattern::of(record, version);
    pieces.iter_mut().zip(&mut words).for_each(|(piece, word)| *piece = word.to_le_bytes());
    let end = words.0.to_le_bytes();
    last.copy_from_slice(&end[..last.len()]);
}

fn is_filled(record: Record, version: u64, value: &[u8]) -> bool {
    let (head, rest) = value.split_at(value.len().min(16));
    let (pieces, last) = rest.as_chunks::<8>();
    let mut words = Pattern::of(record, version);
    // All words are compared without an early exit, because values are nearly always right.
    let differs = |(piece, word): (&[u8; 8], u64)| u64::from_le_bytes(*piece) ^ word;
    let wrong = pieces.iter().zip(&mut words).map(differs).fold(0, |wrong, differs| wrong | differs);
    wrong == 0
        && head == &names(record, version).as_flattened()[..head.len()]
        && last == &words.0.to_le_bytes()[..last.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_ycsb() {
        assert_eq!(&key(0), b"user06284781860667377211");
        assert_eq!(&key(1), b"user08517097267634966620");
        let mut keys: Vec<_> = (0..10_000).map(key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 10_000);
    }

    #[test]
    fn values_say_who_they_are() {
        let values = Values { shortest: 0, longest: 200 };
        let mut out = [0; 200];
        let mut lengths = [0; 201];
        for record in 0..2000 {
            let len = values.fill(record, 77, &mut out);
            lengths[len] += 1;
            let expected = if len >= 9 { 77 } else { 0 };
            assert_eq!(values.check(record, &out[..len]), Some(expected));
            if len >= 8 {
                assert_eq!(values.check(record + 1, &out[..len]), None);
                assert_eq!(values.check(record, &out[..len - 1]), None);
            }
        }
        assert!(lengths.iter().all(|count| *count < 40), "lengths are spread");
    }

    #[test]
    fn a_mixture_of_two_versions_is_none() {
        let values = Values::fixed(64);
        let mut old = [0; 64];
        let mut new = [0; 64];
        values.fill(5, 1, &mut old);
        values.fill(5, 2, &mut new);
        for cut in (16..64).step_by(8) {
            let mut torn = new;
            torn[cut..].copy_from_slice(&old[cut..]);
            assert_eq!(values.check(5, &torn), None, "cut at {cut}");
        }
    }
}
