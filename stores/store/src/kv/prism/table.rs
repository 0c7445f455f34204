//! The server's side of the tables: their layout, their initial content, and the buffers that they point to.
//! While clients work, the server uses only [`Reachable`] for sweeps. The [`Mover`](super::Mover) makes the
//! tables grow.

use std::sync::atomic::Ordering;

use remora_nic::Remote;

use super::grant::Grant;
use super::object::{HEADER, SlotContent, binding, header, see};
use super::slot::{BARE, SLOT, TableSlot};
use super::tables::{FRONT, Front, MOST_TABLES, Tables};
use crate::heap::{Classes, Reachable};
use crate::kv::rpc::Refusal;
use crate::{Registered, kv};

/// The size of a table.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Number of slots of the first table. A slot that was used stays bound to its hash.
    pub slots: u64,
    /// Maximum number of tables, each twice as large as the one before; with 1 the table does not grow.
    pub tables: u32,
    /// Seed of the key hash.
    pub hash_seed: u64,
    /// Maximum key length in bytes.
    pub max_key: u32,
    /// Maximum value length in bytes.
    pub max_value: u32,
}

impl Config {
    /// Returns the configuration for `keys` keys with four slots per key, so that one key in eight is not in
    /// its home slot.
    pub fn for_keys(keys: u32, hash_seed: u64) -> Config {
        let max_key = kv::MAX_KEY as u32;
        let max_value = kv::MAX_VALUE as u32;
        Config { slots: u64::from(keys.max(1)) * 4, tables: 1, hash_seed, max_key, max_value }
    }

    /// Allows the table to grow, at least once, until `keys` keys take half of the slots.
    pub fn growing_to(self, keys: u64) -> Config {
        let enough = |tables: &u32| self.slots << (tables - 1) >= keys.saturating_mul(2);
        Config { tables: (2..MOST_TABLES / 2).find(enough).unwrap_or(MOST_TABLES / 2), ..self }
    }

    /// Returns the bytes of the maximum number of tables.
    ///
    /// # Panics
    /// If no memory is that large.
    pub fn table_len(&self) -> usize {
        self.places(0).len() as usize
    }

    fn places(&self, addr: u64) -> Tables {
        Tables::new(addr, self.slots, self.tables).expect("tables that memory can hold")
    }
}

/// The tables, at the front of a block that also holds their buffers. The block's key allows remote reads,
/// writes and atomics.
#[derive(Clone, Debug)]
pub struct PrismTable {
    memory: Registered,
    config: Config,
    places: Tables,
}

impl PrismTable {
    /// Initialises the block with an empty table.
    ///
    /// # Panics
    /// If the block is too small or its address is not a multiple of 32.
    pub fn new(config: Config, memory: Registered) -> PrismTable {
        let table = PrismTable::attach(config, memory);
        table.clear(0, 0..config.slots);
        table.set_front(Front::FIRST);
        table
    }

    /// Opens the tables that are in the block already.
    ///
    /// # Panics
    /// If the block is too small or its address is not a multiple of 32.
    pub fn attach(config: Config, memory: Registered) -> PrismTable {
        assert!(config.slots > 0 && memory.bytes.len() >= config.table_len(), "the block is too small");
        assert!(memory.addr.is_multiple_of(SLOT as u64), "slots are swapped whole");
        let places = config.places(memory.addr);
        PrismTable { memory, config, places }
    }

    /// Returns the grant for clients.
    pub fn grant(&self, classes: &Classes) -> Grant {
        let Config { slots, tables, hash_seed, max_key, max_value } = self.config;
        let base = self.front().base;
        let table = self.remote(self.memory.addr);
        Grant { slots, hash_seed, table, max_key, max_value, tables, base, classes: classes.clone() }
    }

    /// Returns the number of tables, and the number of those that are no longer in use.
    pub fn tables(&self) -> (u32, u32) {
        let Front { count, base } = self.front();
        (count, base)
    }

    pub(super) fn places(&self) -> &Tables {
        &self.places
    }

    pub(super) fn remote(&self, addr: u64) -> Remote {
        Remote { addr, rkey: self.memory.key }
    }

    /// Returns the word in front of the tables. For memory that no server has written, the initial value is
    /// returned.
    pub(super) fn front(&self) -> Front {
        let word = self.memory.bytes.word(0).expect("the word in front").load(Ordering::Acquire);
        Front::parse(word, self.config.tables).unwrap_or(Front::FIRST)
    }

    /// Publishes the word in front of the tables, after everything that was stored before.
    pub(super) fn set_front(&self, front: Front) {
        let word = self.memory.bytes.word(0).expect("the word in front");
        word.store(front.word(), Ordering::Release);
    }

    fn offset(&self, entry: u64) -> usize {
        FRONT + entry as usize * SLOT
    }

    /// Returns one of a slot's four words, not older than a word of that slot that was loaded before.
    /// `entry` counts slots through all tables.
    pub(super) fn word(&self, entry: u64, index: usize) -> u64 {
        let word = self.memory.bytes.word(self.offset(entry) + 8 * index).expect("a slot of the tables");
        word.load(Ordering::Acquire)
    }

    /// Returns a slot, which may change during the call. `entry` counts slots through all tables.
    pub fn words(&self, entry: u64) -> TableSlot {
        let mut bytes = [0; SLOT];
        self.memory.read(self.offset(entry), &mut bytes);
        TableSlot::parse(&bytes)
    }

    fn put_words(&self, entry: u64, words: &TableSlot) {
        self.memory.write(self.offset(entry), &words.emit());
    }

    /// Initialises slots of a table that no client knows yet.
    pub(super) fn clear(&self, table: u32, slots: std::ops::Range<u64>) {
        let first = self.places.before(table);
        for entry in first + slots.start..first + slots.end {
            self.put_words(entry, &TableSlot::bare(self.places.entry(entry), 0, 0));
        }
    }
}

/// Reports entries in the order in which objects move. So a sweep sees an object in its old slot, or later
/// in its new one.
impl Reachable for PrismTable {
    fn entries(&self) -> usize {
        self.places.before(self.front().count) as usize
    }

    fn buffers(&self, entry: usize, report: &mut dyn FnMut(u64)) {
        let entry = entry as u64;
        let pointer = self.word(entry, 0);
        if pointer != self.places.entry(entry) + BARE as u64 {
            report(pointer);
        }
    }
}

/// A loader that fills the first table before clients connect. It takes the first buffers of each class.
#[derive(Debug)]
pub struct Loader {
    classes: Classes,
    used: Vec<u32>,
    keys: u64,
}

impl Loader {
    /// Returns a loader for classes of which no buffer is posted yet.
    pub fn new(classes: Classes) -> Loader {
        Loader { used: vec![0; classes.all().len()], classes, keys: 0 }
    }

    /// Returns the number of keys that were stored.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Returns true if the loader has used this buffer. All other buffers must be posted.
    pub fn has_used(&self, address: u64) -> bool {
        self.classes.find(address).is_some_and(|(class, index)| index < self.used[class])
    }

    /// Stores `value` under `key`.
    ///
    /// # Errors
    /// `TableFull`, `NoSpace` or `TooLong`; the table is unchanged.
    pub fn put(&mut self, table: &PrismTable, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        let Config { slots, hash_seed, max_key, max_value, .. } = table.config;
        if key.len() > max_key as usize || value.len() > max_value as usize {
            return Err(Refusal::TooLong);
        }
        let hash = binding(hash_seed, key);
        let home = table.places.home(0, hash);
        let most = u64::from(super::client::MOST_PASSED).min(slots);
        for slot in (home..home + most).map(|slot| slot % slots) {
            match self.look(table, slot, hash, key) {
                SlotContent::Other => {}
                SlotContent::Twin | SlotContent::Moved => return Err(Refusal::TableFull),
                SlotContent::Mine { generation, .. } | SlotContent::Gone { generation } => {
                    return self.store(table, slot, generation | 1, hash, key, value);
                }
                SlotContent::Free => {
                    self.store(table, slot, 1, hash, key, value)?;
                    self.keys += 1;
                    return Ok(());
                }
            }
        }
        Err(Refusal::TableFull)
    }

    fn look(&self, table: &PrismTable, slot: u64, hash: u64, key: &[u8]) -> SlotContent {
        let words = table.words(slot);
        if words.hash != hash {
            return if words.hash == 0 { SlotContent::Free } else { SlotContent::Other };
        }
        let mut landed = vec![0; (HEADER + key.len()).min(words.bound as usize)];
        table.memory.read((words.pointer - table.memory.addr) as usize, &mut landed);
        see(&landed, hash, key).unwrap_or(SlotContent::Twin)
    }

    fn store(
        &mut self,
        table: &PrismTable,
        slot: u64,
        generation: u64,
        hash: u64,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), Refusal> {
        let len = HEADER + key.len() + value.len();
        let least = self.classes.for_len(len as u64).ok_or(Refusal::TooLong)?;
        let old = table.words(slot);
        let same =
            self.classes.find(old.pointer).filter(|(class, _)| *class == least && old.generation & 1 == 1);
        let pointer = match same {
            // The buffer can be overwritten, because no client reads yet.
            Some(_) => old.pointer,
            None => {
                // A larger buffer holds the object, too.
                let all = self.classes.all();
                let class = (least..all.len()).find(|class| self.used[*class] < all[*class].count);
                let class = class.ok_or(Refusal::NoSpace)?;
                self.used[class] += 1;
                all[class].address(self.used[class] - 1)
            }
        };
        let offset = (pointer - table.memory.addr) as usize;
        table.memory.write(offset, &header(generation, hash, key.len(), value.len()));
        table.memory.write(offset + HEADER, key);
        table.memory.write(offset + HEADER + key.len(), value);
        table.put_words(slot, &TableSlot { pointer, bound: len as u64, generation, hash });
        Ok(())
    }
}
