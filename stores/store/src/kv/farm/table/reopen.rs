//! Reopens a table over the memory of a server that may have died between any two stores.
//!
//! A server changes one line at a time. So at most one line is locked or torn, and at most one slot in it.
//! An object is complete before a slot points to it, and the object that was stored last has the newest
//! version of all. A torn slot that contains either half of that version is completed, so that the PUT has
//! happened. Any other torn slot is emptied, as after the DELETE or the hop that it was part of. A key that
//! was hopping is in both buckets; the left copy is removed.

use super::{
    Bucket, Config, Extents, FarmSlot, FarmTable, LINE, OBJECT_HEADER, ObjectHeader, PAYLOAD, Region,
    Registered, SLOTS, SlotRef, home, lines_for, tag,
};
use crate::kv::farm::line::version_of;

/// The memory of the dead server while it is examined.
struct Found {
    index: Region,
    values: Region,
    config: Config,
    /// The newest object, if it is complete. A torn slot can be completed only to point to this object.
    newest: Option<FarmSlot>,
    version: u32,
}

impl FarmTable {
    /// Reopens the table of a server that ended or died, in its `index` and `extents`. Returns `None` if the
    /// memory contains no table of this size.
    pub fn reopen(config: Config, index: Registered, extents: Registered) -> Option<FarmTable> {
        if config.buckets == 0 || index.bytes.len() < config.index_len() {
            return None;
        }
        let mut memory = Found {
            index: Region::new(index),
            values: Region::new(extents.clone()),
            config,
            newest: None,
            version: super::LOCKED,
        };
        memory.look_for_newest();
        (0..config.lines()).try_for_each(|line| memory.mend(line))?;
        (0..config.buckets as usize).for_each(|line| memory.join(line));
        let mut runs: Vec<(FarmSlot, SlotRef)> =
            (0..config.lines()).flat_map(|line| memory.runs(line)).collect();
        runs.sort_unstable_by_key(|(slot, _)| slot.line);
        let objects = u32::try_from(config.lines() * SLOTS).unwrap_or(u32::MAX);
        let lines: Vec<(u32, u32)> = runs.iter().map(|(slot, _)| (slot.line, slot.lines.into())).collect();
        let (extents, taken) = Extents::reopen(extents, objects, &lines)?;
        let mut held = vec![[None; SLOTS]; config.lines()];
        for ((_, place), extent) in runs.iter().zip(taken) {
            held[place.line][place.slot] = Some(extent);
        }
        let chains = (0..config.lines()).map(|line| memory.load(line).chain);
        let blocks_used = chains.max().unwrap_or(0);
        let keys = runs.len() as u64;
        let version = memory.version;
        let moves = super::Moves::default();
        Some(FarmTable { index: memory.index, extents, held, config, keys, moves, blocks_used, version })
    }
}

impl Found {
    fn load(&self, line: usize) -> Bucket {
        let mut payload = [0; PAYLOAD];
        self.index.read(line * LINE + 4, &mut payload);
        Bucket::parse(&payload)
    }

    fn publish(&mut self, line: usize, bucket: &Bucket) {
        super::store_locked(&mut self.index, line * LINE, &bucket.emit());
    }

    /// Finds the newest version in memory, and the object that has it.
    fn look_for_newest(&mut self) {
        let lines = self.values.block().bytes.len() / LINE;
        let mut first = 0;
        for line in 0..lines {
            let version = self.values.load(line * LINE) as u32;
            if version > self.version {
                (self.version, first) = (version, line);
            }
        }
        let header = self.header(first as u32);
        let lines = lines_for(header.key_len as usize, header.value_len as usize);
        let slot = FarmSlot {
            line: first as u32,
            lines: u16::try_from(lines).unwrap_or(0),
            tag: tag(header.hash),
            version: self.version,
        };
        self.newest = Some(slot).filter(|slot| self.is_whole(slot));
    }

    fn header(&self, line: u32) -> ObjectHeader {
        let mut header = [0; OBJECT_HEADER];
        if (line as usize + 1) * LINE <= self.values.block().bytes.len() {
            self.values.read(line as usize * LINE + 4, &mut header);
        }
        ObjectHeader::parse(&header)
    }

    /// Returns true if the slot points to a complete object of the slot's version.
    fn is_whole(&self, slot: &FarmSlot) -> bool {
        let first = slot.line as usize;
        let count = usize::from(slot.lines);
        if count == 0 || (first + count) * LINE > self.values.block().bytes.len() {
            return false;
        }
        let header = self.header(slot.line);
        let mut line = [0; LINE];
        lines_for(header.key_len as usize, header.value_len as usize) == count
            && tag(header.hash) == slot.tag
            && (first..first + count).all(|index| {
                self.values.read(index * LINE, &mut line);
                version_of(&line) == Some(slot.version)
            })
    }

    /// Empties or completes the slot that a dead server was changing. Returns `None` if the memory was never
    /// a table.
    fn mend(&mut self, line: usize) -> Option<()> {
        let mut bytes = [0; LINE];
        self.index.read(line * LINE, &mut bytes);
        let torn = version_of(&bytes).is_none();
        let mut bucket = self.load(line);
        let newest = self.newest;
        for slot in &mut bucket.slots {
            if *slot == FarmSlot::default() || self.is_whole(slot) && self.may_stand(slot, line) {
                continue;
            }
            if !torn {
                return None;
            }
            let half = |newest: &FarmSlot| slot.line == newest.line || slot.version == newest.version;
            *slot = newest.filter(half).filter(|slot| self.may_stand(slot, line)).unwrap_or_default();
        }
        if torn {
            self.publish(line, &bucket);
        }
        Some(())
    }

    /// Returns true if the object's key may be in this line. Any key may be in a chained block.
    fn may_stand(&self, slot: &FarmSlot, line: usize) -> bool {
        let home = home(self.header(slot.line).hash, self.config.buckets.into()) as usize;
        line > self.config.buckets as usize || line == home || line == home + 1
    }

    /// Completes a hop from this bucket to the next one.
    fn join(&mut self, line: usize) {
        let mut left = self.load(line);
        let right = self.load(line + 1);
        let before = left;
        for slot in &mut left.slots {
            if slot.is_taken() && right.slots.contains(slot) {
                *slot = FarmSlot::default();
            }
        }
        left.right = right.left;
        if left != before {
            self.publish(line, &left);
        }
    }

    fn runs(&self, line: usize) -> impl Iterator<Item = (FarmSlot, SlotRef)> + use<> {
        let slots = self.load(line).slots.into_iter().enumerate();
        slots.filter(|(_, slot)| slot.is_taken()).map(move |(slot, held)| (held, SlotRef { line, slot }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::rpc::Refusal;
    use crate::kv::table::Table;
    use crate::kv::tests::journal;
    use crate::random::Random;
    use remora_memory::{Bytes, Key};
    use std::collections::BTreeMap;

    const CONFIG: Config = Config { buckets: 6, blocks: 8, hash_seed: 5 };
    const VALUES: u64 = 1 << 40;

    fn blocks() -> [Registered; 2] {
        let block =
            |len: usize, addr| Registered { bytes: Bytes::heap(len).unwrap(), addr, key: Key::new(1) };
        [block(CONFIG.index_len(), 0), block(64 << 10, VALUES)]
    }

    fn copy(block: &Registered) -> Registered {
        let mut bytes = vec![0; block.bytes.len()];
        block.read(0, &mut bytes);
        let new = Registered { bytes: Bytes::heap(bytes.len()).unwrap(), ..block.clone() };
        new.write(0, &bytes);
        new
    }

    /// Returns the value of a key, as the server itself finds it.
    fn get(table: &FarmTable, key: &[u8]) -> Option<Vec<u8>> {
        let hash = super::super::hash_key(CONFIG.hash_seed, key);
        let place = table.locate(hash, key)?;
        let slot = table.load(place.line).slots[place.slot];
        let header = table.header(&slot);
        let mut object = Vec::new();
        for line in 0..usize::from(slot.lines) {
            let mut payload = [0; PAYLOAD];
            table.extents.region.read((slot.line as usize + line) * LINE + 4, &mut payload);
            object.extend(payload);
        }
        let start = OBJECT_HEADER + header.key_len as usize;
        let len = header.value_len as usize;
        Some(object[start..start + len].to_vec())
    }

    fn change(table: &mut FarmTable, key: &[u8], value: Option<&[u8]>) -> Result<(), Refusal> {
        match value {
            Some(value) => table.put(key, value),
            None => table.delete(key),
        }
    }

    /// A server dies after each store of each of many changes in a table that is nearly full. The reopened
    /// table has all completed changes, and the interrupted one has happened or not.
    #[test]
    fn whenever_a_server_dies_the_next_one_has_all_that_was_done() {
        let [index, extents] = blocks();
        let mut table = FarmTable::new(CONFIG, index.clone(), extents.clone());
        let mut random = Random::new(7);
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut deaths = 0;
        let mut mended = 0;
        for turn in 0..160u32 {
            let key = format!("key{}", random.below(26)).into_bytes();
            let value = vec![turn as u8; random.below(150) as usize];
            let value = (random.below(4) > 0).then_some(value);
            let before = [copy(&index), copy(&extents)];
            let mut done = Ok(());
            let stores = journal::of(|| done = change(&mut table, &key, value.as_deref()));
            let old = model.get(&key).cloned();
            for (addr, word) in &stores {
                let (block, offset) = if *addr < VALUES { (0, *addr) } else { (1, *addr - VALUES) };
                before[block].write(offset as usize, &word.to_le_bytes());
                let [index, extents] = [copy(&before[0]), copy(&before[1])];
                let mut reopened = FarmTable::reopen(CONFIG, index, extents).expect("the table");
                deaths += 1;
                for (other, expected) in model.iter().filter(|(other, _)| **other != key) {
                    assert_eq!(get(&reopened, other).as_ref(), Some(expected), "turn {turn}");
                }
                let got = get(&reopened, &key);
                assert!(got == old || done.is_ok() && got == value, "turn {turn}: {got:?}");
                mended += u32::from(got != old);
                let keys = model.len() as u64;
                assert_eq!(reopened.len(), keys - u64::from(old.is_some()) + u64::from(got.is_some()));
                // The reopened table can allocate its free memory.
                reopened.delete(b"key1").or_else(|_| reopened.put(b"key1", b"new")).expect("a change");
            }
            if done.is_ok() {
                match value {
                    Some(value) => model.insert(key, value),
                    None => model.remove(&key),
                };
            }
        }
        assert!(deaths > 2000 && mended > 100 && table.blocks_used() > 0, "{deaths} {mended}");
    }

    #[test]
    fn what_is_free_is_the_same_as_before() {
        let [index, extents] = blocks();
        let mut table = FarmTable::new(CONFIG, index.clone(), extents.clone());
        for turn in 0..200u32 {
            let key = format!("key{}", turn % 20);
            if turn % 7 == 3 {
                let _ = table.delete(key.as_bytes());
            } else {
                table.put(key.as_bytes(), &vec![1; turn as usize * 5]).unwrap();
            }
        }
        let reopened = FarmTable::reopen(CONFIG, index, extents).unwrap();
        assert_eq!((reopened.len(), reopened.free_lines()), (table.len(), table.free_lines()));
        assert_eq!((reopened.version, reopened.blocks_used), (table.version, table.blocks_used));
    }

    #[test]
    fn memory_that_never_was_a_table_is_none() {
        let [index, extents] = blocks();
        let larger = Config { buckets: 1000, ..CONFIG };
        assert!(FarmTable::reopen(larger, index.clone(), extents.clone()).is_none());
        let mut table = FarmTable::new(CONFIG, index.clone(), extents.clone());
        table.put(b"key", b"value").unwrap();
        let other = Config { hash_seed: 6, buckets: 5, ..CONFIG };
        assert!(FarmTable::reopen(other, index, blocks()[1].clone()).is_none(), "objects are missing");
    }
}
