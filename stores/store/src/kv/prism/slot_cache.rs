//! A cache of slots, so that a PUT need not search for its slot. The number of entries is configured; a new
//! slot replaces the older one with the same index.

/// The location of the key with some hash.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Entry {
    /// Hash of the key; 0 if the entry is empty.
    hash: u64,
    address: u64,
    generation: u64,
}

/// Bits per entry that mark keys that are not in their home slot.
const DISPLACED: usize = 8;

/// A direct-mapped cache of slots by hash.
#[derive(Debug)]
pub(super) struct SlotCache {
    entries: Vec<Entry>,
    /// A bit vector by hash: set if a key with such a hash may be away from its home slot. The vector is
    /// small enough to stay in the CPU's cache.
    displaced: Vec<u64>,
}

impl SlotCache {
    /// Returns a cache of at least `count` slots; 0 disables it.
    pub(crate) fn new(count: u32) -> SlotCache {
        let count = if count == 0 { 0 } else { (count as usize).next_power_of_two() };
        SlotCache {
            entries: vec![Entry::default(); count],
            displaced: vec![0; (count * DISPLACED).div_ceil(64)],
        }
    }

    /// Returns the word and the mask of the bit that belongs to a hash.
    #[inline]
    fn bit(&self, hash: u64) -> (usize, u64) {
        let bits = (self.displaced.len() * 64).wrapping_sub(1);
        let bit = hash as usize & bits;
        (bit / 64, 1 << (bit % 64))
    }

    /// Returns true if the key with this hash may be away from its home slot.
    #[inline]
    pub(crate) fn may_be_displaced(&self, hash: u64) -> bool {
        let (word, bit) = self.bit(hash);
        self.displaced.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Notes that the key with this hash was found away from its home slot.
    #[inline]
    pub(crate) fn displaced(&mut self, hash: u64) {
        let (word, bit) = self.bit(hash);
        if let Some(word) = self.displaced.get_mut(word) {
            *word |= bit;
        }
    }

    /// Returns the index of a hash's entry: its low bits, because the home slot depends on the high bits.
    #[inline]
    fn place(&self, hash: u64) -> usize {
        hash as usize & self.entries.len().wrapping_sub(1)
    }

    /// Prefetches the entry of a hash that will be looked up soon.
    #[inline]
    pub(crate) fn announce(&self, hash: u64) {
        if let Some(entry) = self.entries.get(self.place(hash)) {
            remora_memory::prefetch(entry);
        }
    }

    /// Returns the address and the generation of the slot of a hash, if they are cached.
    #[inline]
    pub(crate) fn get(&self, hash: u64) -> Option<(u64, u64)> {
        let entry = self.entries.get(self.place(hash)).filter(|entry| entry.hash == hash)?;
        Some((entry.address, entry.generation))
    }

    /// Remembers a slot.
    #[inline]
    pub(crate) fn set(&mut self, hash: u64, address: u64, generation: u64) {
        let place = self.place(hash);
        if let Some(entry) = self.entries.get_mut(place) {
            *entry = Entry { hash, address, generation };
        }
    }

    /// Forgets the slot of a hash.
    pub(crate) fn forget(&mut self, hash: u64) {
        let place = self.place(hash);
        if let Some(entry) = self.entries.get_mut(place).filter(|entry| entry.hash == hash) {
            *entry = Entry::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_gives_way_to_what_has_its_place() {
        let mut known = SlotCache::new(3);
        known.set(5, 50, 1);
        known.set(6, 60, 3);
        assert_eq!((known.get(5), known.get(6), known.get(9)), (Some((50, 1)), Some((60, 3)), None));
        known.set(9, 90, 1);
        assert_eq!((known.get(5), known.get(9)), (None, Some((90, 1))));
        known.forget(5);
        assert_eq!(known.get(9), Some((90, 1)));
        known.forget(9);
        assert_eq!(known.get(9), None);
    }

    #[test]
    fn none_is_a_number_too() {
        let mut known = SlotCache::new(0);
        known.set(5, 50, 1);
        known.displaced(5);
        known.forget(5);
        assert_eq!((known.get(5), known.may_be_displaced(5)), (None, false));
    }

    #[test]
    fn who_strays_is_remembered_even_of_one() {
        for count in [1, 4, 1 << 10] {
            let mut known = SlotCache::new(count);
            (0..1000u64).for_each(|hash| assert!(!known.may_be_displaced(hash)));
            known.displaced(7);
            assert!(known.may_be_displaced(7) && !known.may_be_displaced(8), "{count}");
        }
    }
}
