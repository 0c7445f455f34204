//! The layout of a server's tables: contiguous, each twice as large as the one before. The word in front of
//! them contains the number of tables, and how many of those are no longer in use.

use super::slot::SLOT;
use crate::kv::hash::reduce;

/// Bytes before the first table.
pub(crate) const FRONT: usize = 32;
/// Maximum number of tables.
pub(super) const MOST_TABLES: u32 = 32;

/// The location of all tables that may ever exist.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Tables {
    addr: u64,
    slots: u64,
    most: u32,
}

impl Tables {
    /// Returns the layout of at most `most` tables, the first with `slots` slots, with the word in front of
    /// it at `addr`. Returns `None` if no memory is that large.
    pub(crate) fn new(addr: u64, slots: u64, most: u32) -> Option<Tables> {
        let tables = Tables { addr, slots, most };
        // Five bits are for the bytes of a slot, and one bit is for the word in front.
        let sound = (1..=MOST_TABLES).contains(&most) && slots > 0 && slots.leading_zeros() >= most + 6;
        (sound && addr.checked_add(tables.len()).is_some()).then_some(tables)
    }

    /// Returns the maximum number of tables.
    pub(crate) fn most(&self) -> u32 {
        self.most
    }

    /// Returns the address of the word in front of the tables.
    pub(crate) fn front(&self) -> u64 {
        self.addr
    }

    /// Returns the number of slots of a table.
    #[inline]
    pub(crate) fn slots(&self, table: u32) -> u64 {
        self.slots << table
    }

    /// Returns the number of slots of all tables before this one.
    #[inline]
    pub(crate) fn before(&self, table: u32) -> u64 {
        (self.slots << table) - self.slots
    }

    /// Returns the bytes of all tables, and of the words in front.
    pub(crate) fn len(&self) -> u64 {
        FRONT as u64 + self.before(self.most) * SLOT as u64
    }

    /// Returns the address of a slot, counted from the first slot of the first table.
    #[inline]
    pub(crate) fn entry(&self, entry: u64) -> u64 {
        self.addr + FRONT as u64 + entry * SLOT as u64
    }

    /// Returns the address of a slot of a table.
    #[inline]
    pub(crate) fn address(&self, table: u32, slot: u64) -> u64 {
        self.entry(self.before(table) + slot)
    }

    /// Returns the home slot of a hash in a table.
    #[inline]
    pub(crate) fn home(&self, table: u32, hash: u64) -> u64 {
        reduce(hash, self.slots(table))
    }
}

/// The word in front of the tables.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Front {
    /// Number of tables.
    pub count: u32,
    /// Index of the first table in use.
    pub base: u32,
}

impl Front {
    /// The word of a server whose table has not grown yet.
    pub(crate) const FIRST: Front = Front { count: 1, base: 0 };

    pub(crate) fn word(self) -> u64 {
        u64::from(self.base) << 32 | u64::from(self.count)
    }

    /// Decodes the word. Returns `None` if no server with at most `most` tables writes it.
    pub(crate) fn parse(word: u64, most: u32) -> Option<Front> {
        let front = Front { count: word as u32, base: (word >> 32) as u32 };
        (front.base < front.count && front.count <= most).then_some(front)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_lie_one_behind_the_other_and_double() {
        let tables = Tables::new(0x1000, 10, 3).unwrap();
        assert_eq!((tables.slots(0), tables.slots(1), tables.slots(2)), (10, 20, 40));
        assert_eq!(tables.address(0, 0), 0x1020);
        assert_eq!(tables.address(1, 0), tables.address(0, 9) + 32);
        assert_eq!(tables.address(2, 0), tables.address(1, 19) + 32);
        assert_eq!(tables.address(2, 39) + 32, 0x1000 + tables.len());
        assert_eq!((tables.home(1, u64::MAX), tables.home(1, 1)), (19, 0));
    }

    #[test]
    fn no_number_of_tables_is_too_large_to_be_refused() {
        assert_eq!(Tables::new(0, 0, 1), None);
        assert_eq!(Tables::new(0, 1, 0), None);
        assert_eq!(Tables::new(0, 1, MOST_TABLES + 1), None);
        assert_eq!(Tables::new(u64::MAX - 32, 1, 1), None);
        assert_eq!(Tables::new(0, u64::MAX, 1), None);
        assert!(Tables::new(0, (1 << 40) - 1, 16).is_some_and(|tables| tables.len() > 1 << 60));
        assert_eq!(Tables::new(0, (1 << 40) - 1, 19), None);
    }

    #[test]
    fn the_word_in_front() {
        let front = Front { count: 3, base: 1 };
        assert_eq!((front.word(), Front::parse(front.word(), 3)), (0x1_0000_0003, Some(front)));
        assert_eq!(Front::parse(front.word(), 2), None);
        assert_eq!((Front::parse(0, 3), Front::parse(0x3_0000_0003, 3)), (None, None));
    }
}
