//! The server's part of FaRM: the table that clients read, their logs, and the calls (`serving.rs`). The
//! shard's program creates it, accepts clients and recovers from dead ones.

use remora_nic::Remote;
use std::sync::atomic::Ordering;

use super::config::MOST_KEYS;
use super::grant::Grant;
use super::layout::{
    ENTRIES, FRONT, HOLDERS, NEAR, OBJECTS, Record, WORD, Word, indexed, log_stride, object_of, record_len,
    stride,
};
use crate::Registered;
use crate::heap::Reachable;
use crate::txn::client::{hash_of, reduce};

/// The size of a shard.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ShardConfig {
    /// Maximum number of keys, including deleted ones.
    pub keys: u64,
    /// Number of index words that hashes select.
    pub homes: u64,
    /// Maximum distance, in index words, of a key from its home word.
    pub reach: u32,
    /// Maximum length of key and value together, in bytes.
    pub max_pair: u32,
    /// Maximum number of clients at the same time, including dead ones that are not recovered yet; below
    /// 4096.
    pub clients: u32,
    /// Maximum number of concurrent transactions per client.
    pub window: u32,
    /// Maximum number of keys per transaction, up to 64. The product of window and keys is at most 4096.
    pub max_keys: u32,
}

/// The first word of a table: "FTXTABL2".
const MAGIC: u64 = u64::from_le_bytes(*b"FTXTABL2");
/// Offsets in the front of the table: its shape, the number of objects, the names of clients.
const SHAPE: usize = 8;
const COUNT: usize = 16;
const NAMES: usize = 64;

impl ShardConfig {
    /// Returns the bytes of the table.
    pub fn table_len(&self) -> usize {
        self.object_at(self.keys)
    }

    pub(super) fn entries(&self) -> u32 {
        self.window * self.max_keys
    }

    fn name_at(&self, holder: u32) -> usize {
        NAMES + (holder as usize - 1) * 8
    }

    pub(super) fn mark_at(&self, holder: u32, place: u32) -> usize {
        self.name_at(self.clients + 1) + ((holder as usize - 1) * self.window as usize + place as usize) * 8
    }

    pub(super) fn log_at(&self, holder: u32, entry: u32) -> usize {
        let first = self.mark_at(self.clients + 1, 0).next_multiple_of(64);
        first + ((holder as usize - 1) * self.entries() as usize + entry as usize) * log_stride(self.max_pair)
    }

    /// Returns the offset of an index word. After the last word that may point to a key, there are as many
    /// words as a READ of that word returns.
    fn index_at(&self, word: u64) -> usize {
        self.log_at(self.clients + 1, 0) + word as usize * 8
    }

    pub(super) fn object_at(&self, object: u64) -> usize {
        let first = self.index_at(self.homes + u64::from(self.reach + NEAR)).next_multiple_of(64);
        first + object as usize * stride(self.max_pair)
    }

    fn shape(&self) -> u64 {
        let parts = [self.reach, self.max_pair, self.clients, self.window, self.max_keys].map(u64::from);
        let mix = |shape: u64, part: &u64| (shape ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        parts.iter().fold(mix(self.keys, &self.homes), mix)
    }

    fn is_sound(&self) -> bool {
        let entries = u64::from(self.window) * u64::from(self.max_keys);
        (1..1 << 32).contains(&self.homes)
            && (1..=self.homes).contains(&self.reach.into())
            && (1..OBJECTS).contains(&self.keys)
            && (1..HOLDERS).contains(&self.clients)
            && (1..=MOST_KEYS).contains(&self.max_keys)
            && (1..=u64::from(ENTRIES)).contains(&entries)
            && self.max_pair <= 1 << 22
    }
}

/// A shard's table, at the start of its memory.
#[derive(Debug)]
pub struct Shard {
    pub(super) config: ShardConfig,
    memory: Registered,
    /// Bitmap of the locked keys, for each transaction of each client's window.
    pub(super) locks: Box<[u64]>,
    /// A buffer for a record that is copied from a log to an object.
    pub(super) scratch: Vec<u8>,
}

impl Shard {
    /// Opens the table in this memory if it has this shape, or creates a new one.
    ///
    /// Locks and logs are kept: each client that is still [named](Shard::names) is dead and must be
    /// recovered. Returns `None` if the configuration is invalid, if the memory is too small, or if its
    /// address is not a multiple of 64.
    pub fn open(config: ShardConfig, memory: &Registered) -> Option<Shard> {
        if !config.is_sound() || memory.bytes.len() < config.table_len() || !memory.addr.is_multiple_of(64) {
            return None;
        }
        let places = (config.clients * config.window) as usize;
        let scratch = Vec::with_capacity(record_len(config.max_pair));
        let shard = Shard { config, memory: memory.clone(), locks: vec![0; places].into(), scratch };
        if shard.word(0) != MAGIC || shard.word(SHAPE) != config.shape() {
            shard.format();
        }
        Some(shard)
    }

    fn format(&self) {
        for holder in 1..=self.config.clients {
            self.set(self.config.name_at(holder), 0);
            self.clear_log(holder);
        }
        for word in 0..self.config.homes + u64::from(self.config.reach + NEAR) {
            self.set(self.config.index_at(word), 0);
        }
        self.set(COUNT, 0);
        self.set(SHAPE, self.config.shape());
        self.set(0, MAGIC);
    }

    pub(super) fn clear_log(&self, holder: u32) {
        (0..self.config.window).for_each(|place| self.set(self.config.mark_at(holder, place), 0));
        (0..self.config.entries()).for_each(|entry| self.set(self.config.log_at(holder, entry), 0));
    }

    pub(super) fn word(&self, offset: usize) -> u64 {
        self.memory.bytes.word(offset).expect("an aligned word of the table").load(Ordering::Acquire)
    }

    pub(super) fn set(&self, offset: usize, word: u64) {
        self.memory.bytes.word(offset).expect("an aligned word of the table").store(word, Ordering::Release);
    }

    /// Returns the record of an object or log entry at this offset, or `None` if its checksum is wrong.
    pub(super) fn record(&self, offset: usize) -> Option<(Record, Vec<u8>)> {
        let mut bytes = vec![0; record_len(self.config.max_pair)];
        self.memory.read(offset, &mut bytes);
        let record = Record::unseal(&bytes)?;
        bytes.truncate(record.len());
        Some((record, bytes))
    }

    pub(super) fn put(&self, object: u64, record: &[u8]) {
        self.memory.write(self.config.object_at(object) + WORD, record);
    }

    pub(super) fn bytes(&self, offset: usize, out: &mut [u8]) {
        self.memory.read(offset, out);
    }

    /// Returns the object of a key. If the key has none, returns the offset of a free index word for it, or
    /// `None` if there is none.
    pub(super) fn find(&self, key: &[u8]) -> Result<u64, Option<usize>> {
        let hash = hash_of(key);
        let home = reduce(hash, self.config.homes);
        for further in 0..u64::from(self.config.reach) {
            let offset = self.config.index_at(home + further);
            match self.word(offset) {
                0 => return Err(Some(offset)),
                word => match object_of(word, hash) {
                    Some(object) if self.has_key(object, key) => return Ok(object),
                    _ => {}
                },
            }
        }
        Err(None)
    }

    fn has_key(&self, object: u64, key: &[u8]) -> bool {
        let offset = self.config.object_at(object) + WORD;
        let mut front = [0; FRONT];
        self.memory.read(offset, &mut front);
        let mut there = [0; 64];
        Record::front(&front).key_len as usize == key.len()
            && key.chunks(there.len()).enumerate().all(|(number, part)| {
                self.memory.read(offset + FRONT + number * 64, &mut there[..part.len()]);
                there[..part.len()] == *part
            })
    }

    /// Adds an empty object for a key, which is at its place in `record`. Returns `None` if all objects are
    /// in use.
    pub(super) fn add(&self, record: &mut Vec<u8>, index: usize) -> Option<u64> {
        let object = self.word(COUNT);
        if object >= self.config.keys {
            return None;
        }
        let hash = hash_of(&record[FRONT..]);
        let never = Record { version: 0, key_len: (record.len() - FRONT) as u32, value_len: None };
        record.resize(never.len(), 0);
        never.seal(record);
        self.put(object, record);
        self.set(self.config.object_at(object), Word::free(0).pack());
        self.set(COUNT, object + 1);
        // The index word is stored last, so a reader finds a complete object.
        self.set(index, indexed(hash, object));
        Some(object)
    }

    /// Accepts a client under a name above 0 that no other client has or had at any shard. Returns `None` if
    /// all client numbers or the name are in use.
    pub fn accept(&mut self, name: u64) -> Option<Grant> {
        if name == 0 || self.holder(name).is_some() {
            return None;
        }
        let free = |holder: &u32| self.word(self.config.name_at(*holder)) == 0;
        let holder = (1..=self.config.clients).find(free)?;
        self.set(self.config.name_at(holder), name);
        let addr = self.memory.addr;
        let rkey = self.memory.key;
        Some(Grant {
            index: Remote { addr: addr + self.config.index_at(0) as u64, rkey },
            homes: self.config.homes,
            objects: addr + self.config.object_at(0) as u64,
            keys: self.config.keys,
            log: addr + self.config.log_at(holder, 0) as u64,
            max_pair: self.config.max_pair,
            window: self.config.window,
            max_keys: self.config.max_keys,
            holder,
            reach: self.config.reach,
        })
    }

    /// Returns the names of the clients that have a number here.
    pub fn names(&self) -> impl Iterator<Item = u64> {
        let name = |holder| self.word(self.config.name_at(holder));
        (1..=self.config.clients).map(name).filter(|name| *name != 0)
    }

    pub(super) fn holder(&self, name: u64) -> Option<u32> {
        (1..=self.config.clients).find(|holder| self.word(self.config.name_at(*holder)) == name)
    }

    /// Frees a client's number.
    pub(super) fn forget(&mut self, holder: u32) {
        self.clear_log(holder);
        let window = self.config.window as usize;
        self.locks[(holder as usize - 1) * window..][..window].fill(0);
        self.set(self.config.name_at(holder), 0);
    }

    /// Stores a key in the table before clients connect. Returns false if the table is full or the key too
    /// long.
    pub fn load(&mut self, key: &[u8], value: &[u8]) -> bool {
        if key.len() > crate::kv::MAX_KEY || key.len() + value.len() > self.config.max_pair as usize {
            return false;
        }
        let Err(Some(index)) = self.find(key) else { return false };
        let mut bytes = [&[0; FRONT], key].concat();
        let Some(object) = self.add(&mut bytes, index) else { return false };
        bytes.truncate(FRONT + key.len());
        bytes.extend_from_slice(value);
        bytes.resize(record_len((key.len() + value.len()) as u32), 0);
        let value_len = Some(value.len() as u32);
        Record { version: 1, key_len: key.len() as u32, value_len }.seal(&mut bytes);
        self.put(object, &bytes);
        self.set(self.config.object_at(object), Word::free(1).pack());
        true
    }

    /// Returns the number of locked objects.
    pub fn locked(&self) -> u64 {
        let locked = |object: &u64| Word::parse(self.word(self.config.object_at(*object))).holder != 0;
        (0..self.word(COUNT)).filter(locked).count() as u64
    }
}

/// Reports no buffers, because objects are updated in place.
impl Reachable for Shard {
    fn entries(&self) -> usize {
        0
    }

    fn buffers(&self, _: usize, _: &mut dyn FnMut(u64)) {}
}
