//! An ordered index of bounded size: sorted keys, each with the slot of a table.
//!
//! The index is a sorted vector, so that it allocates once and its order depends only on the keys. An
//! insertion moves the entries behind it: at most a few hundred kilobytes, for messages that are rare.

/// Sorted keys, each with a slot.
#[derive(Debug)]
pub(crate) struct Index<K> {
    entries: Vec<(K, u32)>,
    max: usize,
}

impl<K: Ord + Copy> Index<K> {
    /// Creates an empty index for at most `max` keys.
    pub(crate) fn new(max: usize) -> Index<K> {
        Index { entries: Vec::with_capacity(max), max }
    }

    /// Returns the slot of a key.
    pub(crate) fn get(&self, key: &K) -> Option<u32> {
        self.position(key).ok().map(|index| self.entries[index].1)
    }

    /// Adds a key. Returns false, and changes nothing, if the key is present or the index is full.
    pub(crate) fn insert(&mut self, key: K, slot: u32) -> bool {
        match self.position(&key) {
            Err(index) if self.entries.len() < self.max => {
                self.entries.insert(index, (key, slot));
                true
            }
            _ => false,
        }
    }

    /// Removes a key if it is present.
    pub(crate) fn remove(&mut self, key: &K) {
        if let Ok(index) = self.position(key) {
            self.entries.remove(index);
        }
    }

    /// Returns the smallest key.
    pub(crate) fn first(&self) -> Option<&K> {
        self.entries.first().map(|(key, _)| key)
    }

    /// Returns the number of keys.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Asserts that the keys are sorted and not more than the maximum.
    pub(crate) fn check(&self) {
        assert!(self.entries.len() <= self.max, "keys <= {}", self.max);
        assert!(self.entries.is_sorted_by(|(a, _), (b, _)| a < b), "keys are in order, each once");
    }

    fn position(&self, key: &K) -> Result<usize, usize> {
        self.entries.binary_search_by(|(other, _)| other.cmp(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn as_a_map(steps in proptest::collection::vec((0_u8..12, 0_u32..100, any::<bool>()), 0..100)) {
            let mut index = Index::new(8);
            let mut model = BTreeMap::new();
            for (key, slot, adds) in steps {
                if adds {
                    let fits = model.len() < 8 && !model.contains_key(&key);
                    prop_assert_eq!(index.insert(key, slot), fits);
                    if fits {
                        model.insert(key, slot);
                    }
                } else {
                    index.remove(&key);
                    model.remove(&key);
                }
                index.check();
                prop_assert_eq!(index.get(&key), model.get(&key).copied());
                prop_assert_eq!((index.first(), index.len()), (model.keys().next(), model.len()));
            }
        }
    }
}
