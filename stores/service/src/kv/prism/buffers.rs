//! The number and sizes of the buffers of a PRISM-KV table. The sizes are fixed for the lifetime of the
//! server. The counted contents get buffers of their own, and each size has a share of the remaining memory.

use remora_store::kv::prism::HEADER;
use remora_store::ycsb::record;

use crate::Result;
use crate::error::ensure;
use crate::kv::{Contents, Limits};

/// Maximum number of buffers on a free list: the number of posts that a ring holds.
const MOST: u64 = remora_nic::MAX_RING_SLOTS as u64;
/// Buffer sizes in addition to that of the records, and their shares of the memory for further keys. The
/// last one holds the longest key and value. A grant has space for eight sizes.
const SIZES: [(u32, u64); 7] =
    [(128, 4), (256, 8), (512, 8), (2048, 6), (8192, 4), (65536, 1), (u32::MAX, 1)];
/// Sum of all shares.
const SHARES: u64 = 32;
/// Minimum number of buffers of each size.
const LEAST: u64 = 4;
/// Bytes for each further key, over all sizes: a quarter of it is one buffer of 256 bytes.
const FURTHER: u64 = 1024;
/// Additional bytes, so that even a small table has buffers of each size for overwrites.
const SPARE: u64 = 16 << 20;

/// Returns the bytes for the counted contents and `further` further keys.
pub(crate) fn bytes_for(limits: &Limits, contents: &Contents, further: u64) -> u64 {
    let (counted, _) = counted(limits, contents);
    counted.iter().map(|(size, count)| u64::from(*size) * count).sum::<u64>() + further * FURTHER + SPARE
}

/// Returns the bytes of a record's buffer.
fn own(limits: &Limits) -> Option<u32> {
    let object = |value: u32| HEADER + record::KEY_LEN + value as usize;
    limits.record_len.map(|value| object(value).next_multiple_of(64) as u32)
}

/// Returns the bytes of an object with the longest key and value.
fn longest(limits: &Limits) -> u32 {
    (HEADER as u32 + limits.max_key + limits.max_value).next_multiple_of(64)
}

/// Returns all sizes, smallest first.
fn all_sizes(limits: &Limits) -> Vec<u32> {
    let sizes = SIZES.iter().map(|(size, _)| (*size).min(longest(limits)));
    let mut all: Vec<u32> = sizes.chain(own(limits)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns the buffers for the counted contents, with an eighth more for overwrites, and the number of
/// objects for which no list has space. Objects that exceed a list get larger buffers.
fn counted(limits: &Limits, contents: &Contents) -> (Vec<(u32, u64)>, u64) {
    let mut all: Vec<(u32, u64)> = all_sizes(limits).into_iter().map(|size| (size, 0)).collect();
    for (bytes, count) in contents.lens() {
        let object = HEADER as u64 + u64::from(bytes);
        let index = all.partition_point(|(size, _)| u64::from(*size) < object).min(all.len() - 1);
        all[index].1 += count;
    }
    let mut carried = 0;
    for (size, count) in &mut all {
        let objects = *count + carried;
        let more = if own(limits) == Some(*size) { 4096 } else { LEAST };
        let wanted = if objects > 0 { objects + objects / 8 + more } else { 0 };
        (*count, carried) = (wanted.min(MOST), objects.saturating_sub(MOST));
    }
    (all, carried)
}

/// Returns the sizes of buffers and their numbers, for `keys` keys and `bytes` bytes. Further keys are
/// assumed to resemble the records, if there are records: these get seven eighths.
///
/// # Errors
/// The counted contents exceed the free lists.
pub(crate) fn sizes(limits: &Limits, contents: &Contents, keys: u32, bytes: u64) -> Result<Vec<(u32, u32)>> {
    let (mut all, carried) = counted(limits, contents);
    ensure!(
        carried == 0,
        Config,
        "{carried} keys are too many for prism: a size of buffers has {MOST} at most"
    );
    if let Some(own) = own(limits)
        && let Some((size, count)) = all.iter_mut().find(|(size, _)| *size == own)
    {
        let like_them = u64::from(keys).min(bytes / 8 * 7 / u64::from(*size));
        *count = like_them.max(*count).min(MOST);
    }
    let taken: u64 = all.iter().map(|(size, count)| u64::from(*size) * count).sum();
    let left = bytes.saturating_sub(taken);
    let share = |(size, count): (u32, u64)| {
        let more = share(limits, size, left) / u64::from(size);
        (size, (count + more).clamp(LEAST, MOST) as u32)
    };
    Ok(all.into_iter().map(share).collect())
}

/// Returns the share of a size in the `left` bytes. A key that finds no buffer of its size takes a larger
/// one. So keys of 256 bytes on average fit, unless many are very long.
fn share(limits: &Limits, size: u32, left: u64) -> u64 {
    let entries = SIZES.iter().filter(|(nominal, _)| (*nominal).min(longest(limits)) == size);
    left / SHARES * entries.map(|(_, share)| share).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(record_len: Option<u32>) -> Limits {
        Limits { max_key: 1024, max_value: 1 << 20, record_len, ..Limits::default() }
    }

    /// Returns the number of objects that find no buffer. Each takes the smallest free buffer that holds it,
    /// in the worst order: the largest objects first.
    fn refused(sizes: &[(u32, u32)], objects: &[(u32, u64)]) -> u64 {
        let mut left: Vec<(u32, u64)> = sizes.iter().map(|(size, count)| (*size, (*count).into())).collect();
        let mut refused = 0;
        for (bytes, mut count) in objects.iter().rev().copied() {
            for (_, buffers) in left.iter_mut().filter(|(size, _)| *size >= bytes + HEADER as u32) {
                let taken = count.min(*buffers);
                (count, *buffers) = (count - taken, *buffers - taken);
            }
            refused += count;
        }
        refused
    }

    #[test]
    fn what_was_counted_has_a_buffer_each_whatever_the_memory() {
        let mut contents = Contents::default();
        let objects = [(16, 200_000), (96, 1 << 20), (104, 9), (400, 70_000), (5000, 300), (1 << 20, 7)];
        objects.iter().for_each(|(bytes, count)| contents.add(*bytes as usize, *count));
        for record_len in [None, Some(64), Some(4000)] {
            let limits = limits(record_len);
            for bytes in
                [0, 1 << 20, bytes_for(&limits, &contents, 0), bytes_for(&limits, &contents, 400_000)]
            {
                let sizes = sizes(&limits, &contents, 400_000, bytes).unwrap();
                assert!(sizes.len() <= 8 && sizes.is_sorted(), "{sizes:?}");
                assert_eq!(refused(&sizes, &objects), 0, "{record_len:?} {bytes}: {sizes:?}");
            }
        }
    }

    #[test]
    fn a_table_for_so_many_further_keys_takes_them_short_or_mixed() {
        let limits = limits(None);
        let none = Contents::default();
        let sizes = sizes(&limits, &none, 100_000, bytes_for(&limits, &none, 100_000)).unwrap();
        assert_eq!(refused(&sizes, &[(20, 100_000)]), 0, "{sizes:?}");
        assert_eq!(refused(&sizes, &[(232, 100_000)]), 0, "{sizes:?}");
        // Uniform lengths of 10 to 410 bytes, and lengths each of which is half as frequent as the one
        // before.
        let alike: Vec<(u32, u64)> = (10..410).map(|bytes| (bytes, 250)).collect();
        assert_eq!(refused(&sizes, &alike), 0, "{sizes:?}");
        let halves = [(100, 50_000), (200, 25_000), (400, 12_500), (800, 6000), (1600, 1500), (6400, 90)];
        assert_eq!(refused(&sizes, &halves), 0, "{sizes:?}");
    }

    #[test]
    fn more_than_all_lists_hold_is_refused_in_words() {
        let mut contents = Contents::default();
        contents.add(1 << 20, MOST + 1);
        let words = sizes(&limits(None), &contents, 100, 0).unwrap_err().to_string();
        assert!(words.contains("too many for prism"), "{words}");
    }
}
