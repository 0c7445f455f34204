//! Items counted by their size, as memcached does it: tools that read `stats items` and `stats slabs` see
//! what they know. Memory is not divided into these classes here.

/// Classes; class 0 has no items.
pub const CLASSES: usize = 40;
/// Bytes that memcached takes beside key and value: its header, the number for `cas`, and the ends of both.
const BESIDE: usize = 48 + 8 + 1 + 2;
/// Size of the largest class's chunks.
const LARGEST: usize = 512 << 10;

/// The largest item of each class.
const SIZES: [usize; CLASSES] = sizes();

const fn sizes() -> [usize; CLASSES] {
    let mut sizes = [0; CLASSES];
    let (mut class, mut size) = (1, 96usize);
    while class < CLASSES - 1 {
        sizes[class] = size;
        size = (size + size / 4).next_multiple_of(8);
        class += 1;
    }
    sizes[class] = LARGEST;
    sizes
}

/// Bytes that memcached counts for an item. A client's flags count if they are not 0.
pub fn size(key: usize, flags: u32, value: usize) -> usize {
    BESIDE + key + value + if flags == 0 { 0 } else { 4 }
}

/// The class of items of this size; longer ones than its chunks are in the last one.
pub fn class(size: usize) -> usize {
    SIZES.partition_point(|largest| *largest < size).min(CLASSES - 1)
}

/// The largest item of a class.
pub fn largest(class: usize) -> usize {
    SIZES[class]
}

/// What happened to the items of a class, by memcached's names.
#[derive(Copy, Clone, Default, Debug)]
pub struct Class {
    /// Items at present.
    pub number: u64,
    /// Their size in all.
    pub requested: u64,
    /// Since the start, or since `stats reset`.
    pub counts: Counts,
}

/// Event counts of a class.
#[derive(Copy, Clone, Default, Debug, PartialEq, Eq)]
pub struct Counts {
    pub evicted: u64,
    pub evicted_nonzero: u64,
    /// Seconds that the one evicted last had not been used.
    pub evicted_time: u64,
    pub outofmemory: u64,
    pub reclaimed: u64,
    pub expired_unfetched: u64,
    pub evicted_unfetched: u64,
    pub crawler_reclaimed: u64,
    pub get_hits: u64,
    pub cmd_set: u64,
    pub delete_hits: u64,
    pub incr_hits: u64,
    pub decr_hits: u64,
    pub cas_hits: u64,
    pub cas_badval: u64,
    pub touch_hits: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_memcacheds() {
        for (item, expected) in [
            (96, 1),
            (97, 2),
            (120, 2),
            (1184, 12),
            (66619, 31),
            (82792, 31),
            (394_840, 38),
            (394_841, 39),
            (1 << 20, 39),
        ] {
            assert_eq!(class(item), expected, "{item}");
        }
        assert_eq!((size(3, 5, 2), size(1, 0, 1000)), (68, 1060));
    }
}
