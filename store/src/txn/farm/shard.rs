//! A server's part: the table that clients work on, and their logs. Its program makes it, admits clients and ends what dead ones began.

use nic::Remote;
use std::sync::atomic::Ordering;

use super::grant::Grant;
use super::layout::{ENTRIES, HOLDERS, Record, WORD, Word, log_stride, record_len, stride};
use crate::Registered;
use crate::heap::Reachable;
use crate::txn::client::slot_of;

/// How large a shard is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ShardConfig {
    /// Slots: keys that it ever had, at most.
    pub slots: u64,
    /// Slots that a key may be away from where its hash leads.
    pub reach: u32,
    /// Bytes of key and value together, at most.
    pub room: u32,
    /// Clients at a time, those included that died and are not recovered yet; below 4096.
    pub clients: u32,
    /// Transactions of each at a time.
    pub window: u32,
    /// Keys of each transaction; window and keys multiply to 4096 at most.
    pub max_keys: u32,
}

/// The first word of a table: "FTXTABLE".
const MAGIC: u64 = u64::from_le_bytes(*b"FTXTABLE");
/// The front: the magic, and the shape.
const SHAPE: usize = 8;
const NAMES: usize = 64;

impl ShardConfig {
    /// Bytes of the table.
    pub fn table_len(&self) -> usize {
        self.slot_at(self.slots)
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
        first + ((holder as usize - 1) * self.entries() as usize + entry as usize) * log_stride(self.room)
    }

    pub(super) fn slot_at(&self, slot: u64) -> usize {
        self.log_at(self.clients + 1, 0) + slot as usize * stride(self.room)
    }

    fn shape(&self) -> u64 {
        let parts = [self.room, self.clients, self.window, self.max_keys];
        parts
            .iter()
            .fold(self.slots, |shape, part| (shape ^ u64::from(*part)).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn is_sound(&self) -> bool {
        let entries = u64::from(self.window) * u64::from(self.max_keys);
        (1..1 << 32).contains(&self.slots)
            && (1..=self.slots).contains(&self.reach.into())
            && (1..HOLDERS).contains(&self.clients)
            && (1..=u64::from(ENTRIES)).contains(&entries)
            && self.room <= 1 << 22
    }
}

/// A shard's table, at the start of its memory.
#[derive(Debug)]
pub struct Shard {
    pub(super) config: ShardConfig,
    memory: Registered,
}

impl Shard {
    /// The table in this memory: the one that is there, if it is of this shape, or a new one. Locks and logs stay: each client that is
    /// still [named](Shard::names) is dead, and to be recovered. None: the numbers are not possible, or the memory is too small. The memory begins at a
    /// multiple of 64.
    pub fn open(config: ShardConfig, memory: &Registered) -> Option<Shard> {
        if !config.is_sound() || memory.bytes.len() < config.table_len() || !memory.addr.is_multiple_of(64) {
            return None;
        }
        let shard = Shard { config, memory: memory.clone() };
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
        let mut never = vec![0; record_len(0)];
        Record { version: 0, key_len: 0, value_len: None }.seal(&mut never);
        for slot in 0..self.config.slots {
            let at = self.config.slot_at(slot);
            self.memory.write(at + WORD, &never);
            self.set(at, Word::free(0).pack());
        }
        self.set(SHAPE, self.config.shape());
        self.set(0, MAGIC);
    }

    pub(super) fn clear_log(&self, holder: u32) {
        (0..self.config.window).for_each(|place| self.set(self.config.mark_at(holder, place), 0));
        (0..self.config.entries()).for_each(|entry| self.set(self.config.log_at(holder, entry), 0));
    }

    pub(super) fn word(&self, at: usize) -> u64 {
        self.memory.bytes.word(at).expect("an aligned word of the table").load(Ordering::Acquire)
    }

    pub(super) fn set(&self, at: usize, word: u64) {
        self.memory.bytes.word(at).expect("an aligned word of the table").store(word, Ordering::Release);
    }

    /// The record at an offset, of a slot or a log entry; None if it is not whole.
    pub(super) fn record(&self, at: usize) -> Option<(Record, Vec<u8>)> {
        let mut bytes = vec![0; record_len(self.config.room)];
        self.memory.read(at, &mut bytes);
        let record = Record::unseal(&bytes)?;
        bytes.truncate(record.len());
        Some((record, bytes))
    }

    pub(super) fn put(&self, slot: u64, record: &[u8]) {
        self.memory.write(self.config.slot_at(slot) + WORD, record);
    }

    /// Takes a client on, under a name that no other client has or had at any shard, above 0. None: all places are taken, or the name is.
    pub fn accept(&mut self, name: u64) -> Option<Grant> {
        if name == 0 || self.holder(name).is_some() {
            return None;
        }
        let free = |holder: &u32| self.word(self.config.name_at(*holder)) == 0;
        let holder = (1..=self.config.clients).find(free)?;
        self.set(self.config.name_at(holder), name);
        let (addr, rkey) = (self.memory.addr, self.memory.key);
        Some(Grant {
            slots: Remote { addr: addr + self.config.slot_at(0) as u64, rkey },
            slot_count: self.config.slots,
            marks: addr + self.config.mark_at(holder, 0) as u64,
            log: addr + self.config.log_at(holder, 0) as u64,
            room: self.config.room,
            window: self.config.window,
            max_keys: self.config.max_keys,
            holder,
            reach: self.config.reach,
        })
    }

    /// The clients that have a place here.
    pub fn names(&self) -> impl Iterator<Item = u64> {
        let name = |holder| self.word(self.config.name_at(holder));
        (1..=self.config.clients).map(name).filter(|name| *name != 0)
    }

    pub(super) fn holder(&self, name: u64) -> Option<u32> {
        (1..=self.config.clients).find(|holder| self.word(self.config.name_at(*holder)) == name)
    }

    /// A client's place is free again.
    pub(super) fn forget(&self, holder: u32) {
        self.clear_log(holder);
        self.set(self.config.name_at(holder), 0);
    }

    /// Puts a key into the table before clients come. False: there is no slot for it, or it is too long.
    pub fn load(&mut self, key: &[u8], value: &[u8]) -> bool {
        let home = slot_of(key, self.config.slots);
        let free = (0..u64::from(self.config.reach))
            .map(|further| (home + further) % self.config.slots)
            .find(|slot| self.word(self.config.slot_at(*slot)) == Word::free(0).pack());
        let fits = key.len() + value.len() <= self.config.room as usize;
        let (Some(slot), true) = (free, fits) else { return false };
        let mut bytes = vec![0; record_len((key.len() + value.len()) as u32)];
        bytes[super::layout::FRONT..][..key.len()].copy_from_slice(key);
        bytes[super::layout::FRONT + key.len()..][..value.len()].copy_from_slice(value);
        let value_len = Some(value.len() as u32);
        Record { version: 1, key_len: key.len() as u32, value_len }.seal(&mut bytes);
        self.put(slot, &bytes);
        self.set(self.config.slot_at(slot), Word::free(1).pack());
        true
    }

    /// Slots that are locked.
    pub fn locked(&self) -> u64 {
        let locked = |slot: &u64| Word::parse(self.word(self.config.slot_at(*slot))).holder != 0;
        (0..self.config.slots).filter(locked).count() as u64
    }
}

/// Values lie in place: there are no buffers.
impl Reachable for Shard {
    fn entries(&self) -> usize {
        0
    }

    fn buffers(&self, _: usize, _: &mut dyn FnMut(u64)) {}
}
