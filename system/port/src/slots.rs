//! A table of numbered entries whose numbers are reused.

use std::collections::VecDeque;

/// Number of freed numbers that are kept unused, as long as the table is not full, before the oldest of
/// them is reused.
const RESTING: usize = 64;

/// Entries by number. The number of a removed entry is reused as late as possible.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    entries: Vec<Option<T>>,
    freed: VecDeque<u32>,
    max: u32,
}

impl<T> Slots<T> {
    /// Creates an empty table of up to `max` entries.
    pub(crate) fn new(max: u32) -> Self {
        Slots { entries: Vec::new(), freed: VecDeque::new(), max }
    }

    /// Returns the entry with this number; `None` if there is none.
    #[inline(always)]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.entries.get(number as usize)?.as_ref()
    }

    /// Returns the entry with this number, mutably; `None` if there is none.
    #[inline(always)]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.entries.get_mut(number as usize)?.as_mut()
    }

    /// Adds an entry and returns its number; `None` if the table is full.
    pub(crate) fn insert(&mut self, entry: T) -> Option<u32> {
        let count = self.entries.len() as u32;
        if count < self.max && self.freed.len() < RESTING {
            self.entries.push(Some(entry));
            return Some(count);
        }
        let number = self.freed.pop_front()?;
        self.entries[number as usize] = Some(entry);
        Some(number)
    }

    /// Removes the entry with this number and returns it; `None` if there is none.
    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let removed = self.entries.get_mut(number as usize)?.take()?;
        self.freed.push_back(number);
        Some(removed)
    }

    /// Iterates over all entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_given_back_and_rests_while_the_table_has_room() {
        let mut slots = Slots::new(200);
        let first = slots.insert('a').unwrap();
        assert_eq!((slots.remove(first), slots.remove(first), slots.get(first)), (Some('a'), None, None));
        for _ in 0..10_000 {
            let number = slots.insert('b').unwrap();
            assert_eq!(slots.remove(number), Some('b'));
        }
        assert!(
            slots.entries.len() <= RESTING + 1,
            "{} entries, although one is used at a time",
            slots.entries.len()
        );
    }

    #[test]
    fn a_full_table_takes_one_more_for_each_that_is_removed() {
        let mut slots = Slots::new(3);
        let numbers: Vec<u32> = (0..3).map(|entry| slots.insert(entry).unwrap()).collect();
        assert_eq!(slots.insert(9), None);
        assert_eq!(slots.remove(numbers[1]), Some(1));
        assert_eq!((slots.insert(9), slots.insert(10)), (Some(numbers[1]), None));
        assert_eq!(slots.iter().copied().collect::<Vec<_>>(), [0, 9, 2]);
    }
}
