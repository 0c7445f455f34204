//! The layout of the records: a cuckoo hash table with two choices and one key per bucket, as the program
//! for two buckets requires.

use anyhow::{Context as _, Result};
use remora_chain::offload::{BUCKET, bucket, places};
use remora_store::ycsb::record::Values;
use remora_verbs::MemoryRegion;

/// The maximum number of moves to free a bucket for a key.
const MOVES: usize = 1000;

/// The sizes of the table, for both sides.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Table {
    records: u64,
    value_len: u32,
    /// The number of buckets: a power of two, of which at most a third is occupied.
    pub buckets: u64,
}

/// Returns the key of a record: 48 bits, and not 0.
pub(crate) fn key(record: u64) -> u64 {
    record + 1
}

impl Table {
    /// Makes a table for `records` records with values of `value_len` bytes.
    pub(crate) fn new(records: u64, value_len: u32) -> Table {
        Table { records, value_len, buckets: (records * 3).next_power_of_two() }
    }

    /// Returns the size of buckets and values in bytes.
    pub(crate) fn bytes(&self) -> usize {
        (self.buckets * BUCKET + self.records * self.stride()) as usize
    }

    /// Returns the distance between two values in bytes.
    fn stride(&self) -> u64 {
        u64::from(self.value_len).next_multiple_of(64)
    }

    /// Writes all records.
    ///
    /// # Errors
    /// Fails if no bucket can be found for a key.
    pub(crate) fn fill(&self, memory: &MemoryRegion) -> Result<()> {
        let values = Values::fixed(self.value_len);
        let mut value = vec![0; self.value_len as usize];
        for record in 0..self.records {
            values.fill(record, 0, &mut value);
            memory.write(self.value(record) as usize, &value)?;
        }
        for (place, key) in self.arrange()?.into_iter().enumerate() {
            let address = |record| memory.address() + self.value(record);
            let bucket = match key.checked_sub(1) {
                Some(record) => bucket(key, address(record), self.value_len.into()),
                None => bucket(0, 0, 0),
            };
            memory.write(place * BUCKET as usize, &bucket)?;
        }
        Ok(())
    }

    fn value(&self, record: u64) -> u64 {
        self.buckets * BUCKET + record * self.stride()
    }

    /// Returns the key of each bucket, or 0 for an empty one.
    fn arrange(&self) -> Result<Vec<u64>> {
        let mut keys = vec![0; self.buckets as usize];
        for record in 0..self.records {
            self.place(&mut keys, key(record)).context("a key fits into neither of its two buckets")?;
        }
        Ok(keys)
    }

    /// Puts a key into one of its two buckets. A key that is displaced moves to its other bucket.
    fn place(&self, keys: &mut [u64], mut key: u64) -> Option<()> {
        let mut index = places(key, self.buckets)[0] as usize;
        for _ in 0..MOVES {
            key = std::mem::replace(&mut keys[index], key);
            if key == 0 {
                return Some(());
            }
            let [first, second] = places(key, self.buckets).map(|place| place as usize);
            index = if index == first { second } else { first };
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_in_one_of_its_two_places() {
        let table = Table::new(10_000, 64);
        let keys = table.arrange().unwrap();
        for record in 0..10_000 {
            let held = places(key(record), table.buckets).map(|place| keys[place as usize] == key(record));
            assert!(held[0] || held[1], "record {record}");
        }
        assert_eq!(keys.iter().filter(|key| **key > 0).count(), 10_000);
    }

    #[test]
    fn a_table_that_is_full_says_so() {
        let table = Table { records: 9, value_len: 16, buckets: 8 };
        assert!(table.arrange().is_err());
    }
}
