//! The server's side of the table: its layout, what it begins with, and what it leads to. Nothing here runs while clients work but the look of
//! a sweep.

use nic::Remote;

use super::grant::Grant;
use super::object::{HEADER, Seen, binding, header, see};
use super::slot::{BARE, SLOT, Words};
use crate::heap::{Classes, Reachable};
use crate::kv::hash::reduce;
use crate::kv::rpc::Refusal;
use crate::{Registered, kv};

/// How large a table is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Slots. A slot that was used stays with its hash.
    pub slots: u64,
    /// Seed of the hash.
    pub hash_seed: u64,
    /// Longest key that may be stored.
    pub max_key: u32,
    /// Longest value that may be stored.
    pub max_value: u32,
}

impl Config {
    /// For `keys` keys: four slots a key, so that one that is not in its home is one in eight.
    pub fn for_keys(keys: u32, hash_seed: u64) -> Config {
        let (max_key, max_value) = (kv::MAX_KEY as u32, kv::MAX_VALUE as u32);
        Config { slots: u64::from(keys.max(1)) * 4, hash_seed, max_key, max_value }
    }

    /// Bytes of the table.
    pub fn table_len(&self) -> usize {
        self.slots as usize * SLOT
    }
}

/// A table at the front of a block that holds its buffers too, under one key that allows remote reads, writes and atomics.
#[derive(Clone, Debug)]
pub struct PrismTable {
    memory: Registered,
    config: Config,
}

impl PrismTable {
    /// An empty table.
    ///
    /// # Panics
    /// If the block is too small or its address is no multiple of 32.
    pub fn new(config: Config, memory: Registered) -> PrismTable {
        let table = PrismTable::attach(config, memory);
        for slot in 0..config.slots {
            table.put_words(slot, &Words::bare(table.address(slot), 0, 0));
        }
        table
    }

    /// The table that is in the block already.
    ///
    /// # Panics
    /// As [`new`](PrismTable::new).
    pub fn attach(config: Config, memory: Registered) -> PrismTable {
        assert!(config.slots > 0 && memory.bytes.len() >= config.table_len(), "the block is too small");
        assert!(memory.addr.is_multiple_of(SLOT as u64), "slots are swapped whole");
        PrismTable { memory, config }
    }

    /// What a client must know of it.
    pub fn grant(&self, classes: &Classes) -> Grant {
        let Config { slots, hash_seed, max_key, max_value } = self.config;
        let table = Remote { addr: self.memory.addr, rkey: self.memory.key };
        Grant { slots, hash_seed, table, max_key, max_value, classes: classes.clone() }
    }

    fn address(&self, slot: u64) -> u64 {
        self.memory.addr + slot * SLOT as u64
    }

    /// A slot, of which nobody knows whether it is being changed.
    pub fn words(&self, slot: u64) -> Words {
        let mut bytes = [0; SLOT];
        self.memory.read(slot as usize * SLOT, &mut bytes);
        Words::parse(&bytes)
    }

    fn put_words(&self, slot: u64, words: &Words) {
        self.memory.write(slot as usize * SLOT, &words.emit());
    }
}

impl Reachable for PrismTable {
    fn entries(&self) -> usize {
        self.config.slots as usize
    }

    fn buffers(&self, entry: usize, found: &mut dyn FnMut(u64)) {
        let word = self.memory.bytes.word(entry * SLOT).expect("a slot of the table");
        let pointer = word.load(std::sync::atomic::Ordering::Relaxed);
        if pointer != self.address(entry as u64) + BARE as u64 {
            found(pointer);
        }
    }
}

/// Fills a table before clients come: takes the first buffers of each class.
#[derive(Debug)]
pub struct Loader {
    classes: Classes,
    used: Vec<u32>,
    keys: u64,
}

impl Loader {
    /// Of buffers none of which is posted.
    pub fn new(classes: Classes) -> Loader {
        Loader { used: vec![0; classes.all().len()], classes, keys: 0 }
    }

    /// Keys that it has put in.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Is this one of the buffers that it has used? All others are to be posted.
    pub fn has_used(&self, address: u64) -> bool {
        self.classes.find(address).is_some_and(|(class, index)| index < self.used[class])
    }

    /// Stores `value` under `key`.
    ///
    /// # Errors
    /// `TableFull`, `NoSpace`, `TooLong`; nothing changes then.
    pub fn put(&mut self, table: &PrismTable, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        let Config { slots, hash_seed, max_key, max_value } = table.config;
        if key.len() > max_key as usize || value.len() > max_value as usize {
            return Err(Refusal::TooLong);
        }
        let hash = binding(hash_seed, key);
        let home = reduce(hash, slots);
        let most = u64::from(super::client::MOST_PASSED).min(slots);
        for slot in (home..home + most).map(|slot| slot % slots) {
            match self.look(table, slot, hash, key) {
                Seen::Other => {}
                Seen::Twin => return Err(Refusal::TableFull),
                Seen::Mine { generation, .. } | Seen::Gone { generation } => {
                    return self.store(table, slot, generation | 1, hash, key, value);
                }
                Seen::Free => {
                    self.store(table, slot, 1, hash, key, value)?;
                    self.keys += 1;
                    return Ok(());
                }
            }
        }
        Err(Refusal::TableFull)
    }

    fn look(&self, table: &PrismTable, slot: u64, hash: u64, key: &[u8]) -> Seen {
        let words = table.words(slot);
        if words.hash != hash {
            return if words.hash == 0 { Seen::Free } else { Seen::Other };
        }
        let mut landed = vec![0; (HEADER + key.len()).min(words.bound as usize)];
        table.memory.read((words.pointer - table.memory.addr) as usize, &mut landed);
        see(&landed, hash, key).unwrap_or(Seen::Twin)
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
        let class = self.classes.for_len(len as u64).ok_or(Refusal::TooLong)?;
        let old = table.words(slot);
        let same = self.classes.find(old.pointer).filter(|(at, _)| *at == class && old.generation & 1 == 1);
        let pointer = match same {
            // Nobody reads yet.
            Some(_) => old.pointer,
            None => {
                let of = &self.classes.all()[class];
                let index = self.used[class];
                if index == of.count {
                    return Err(Refusal::NoSpace);
                }
                self.used[class] += 1;
                of.address(index)
            }
        };
        let at = (pointer - table.memory.addr) as usize;
        table.memory.write(at, &header(generation, hash, key.len(), value.len()));
        table.memory.write(at + HEADER, key);
        table.memory.write(at + HEADER + key.len(), value);
        table.put_words(slot, &Words { pointer, bound: len as u64, generation, hash });
        Ok(())
    }
}
