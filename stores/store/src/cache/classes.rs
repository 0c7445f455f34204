//! Size classes of items, counted as memcached counts them, so that tools can interpret `stats items` and
//! `stats slabs`. The memory itself is not divided into these classes.

/// Number of classes; class 0 has no items.
pub(crate) const CLASSES: usize = 40;
/// Bytes that memcached uses in addition to key and value: its header, the number for `cas`, and the ends of
/// both.
const BESIDE: usize = 48 + 8 + 1 + 2;
/// Size of the chunks of the largest class.
const LARGEST: usize = 512 << 10;

/// Maximum item size of each class.
const SIZES: [usize; CLASSES] = sizes();

const fn sizes() -> [usize; CLASSES] {
    let mut sizes = [0; CLASSES];
    let mut class = 1;
    let mut size = 96usize;
    while class < CLASSES - 1 {
        sizes[class] = size;
        size = (size + size / 4).next_multiple_of(8);
        class += 1;
    }
    sizes[class] = LARGEST;
    sizes
}

/// Returns the bytes that memcached counts for an item. A client's flags are counted if they are not 0.
pub(crate) fn size(key: usize, flags: u32, value: usize) -> usize {
    BESIDE + key + value + if flags == 0 { 0 } else { 4 }
}

/// Returns the class of items of this size. Items larger than all chunks belong to the last class.
pub(crate) fn class(size: usize) -> usize {
    SIZES.partition_point(|largest| *largest < size).min(CLASSES - 1)
}

/// Returns the maximum item size of a class.
pub(crate) fn largest(class: usize) -> usize {
    SIZES[class]
}

/// The statistics of a class, by memcached's names.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct Class {
    /// Current number of items.
    pub number: u64,
    /// Total size of the items.
    pub requested: u64,
    /// Events since the start, or since `stats reset`.
    pub counts: Counts,
}

/// Numbers of events in a class.
#[derive(Copy, Clone, Default, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub evicted: u64,
    pub evicted_nonzero: u64,
    /// Seconds for which the item that was evicted last had not been used.
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
