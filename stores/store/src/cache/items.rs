//! The items: objects of the table with a node each, and the eviction of items when memory is full.

mod eviction;
mod figures;

use super::attributes::{Attributes, Marks};
use super::buckets::{Buckets, Directory};
use super::classes::{self, CLASSES, Class};
use super::lru::{Lru, NONE};
use super::{Config, MAX_KEY};
use crate::kv::two_sided::{self, Draft, TwoSidedTable};
use crate::kv::{Registered, Stored, Table};
use remora_transport::Instant;

/// The identity of an item until it is removed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Name(u32);

#[derive(Copy, Clone)]
struct Node {
    stored: Stored,
    key_len: u8,
    /// True if the node belongs to an item.
    used: bool,
    /// Time of the last use, in seconds since the start of the cache.
    accessed: u32,
    attributes: Attributes,
}

impl Node {
    fn size(&self) -> usize {
        classes::size(self.key_len.into(), self.attributes.flags, self.stored.len)
    }

    fn class(&self) -> usize {
        classes::class(self.size())
    }
}

/// Counters of items that were dropped, by reason.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Gone {
    /// Live items that were evicted to free memory.
    pub evicted: u64,
    /// Live items that were evicted and never read.
    pub evicted_unfetched: u64,
    /// Dead items found by the sweep or a lookup.
    pub reclaimed: u64,
    /// Dead items that were never read.
    pub expired_unfetched: u64,
    /// Dead items found by `lru_crawler crawl`.
    pub crawled: u64,
    /// Items examined by `lru_crawler crawl`.
    pub looked_at: u64,
}

/// The reason for which an item was not found.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Missing {
    /// The key is not stored.
    Absent,
    /// The item had expired.
    Expired,
    /// The item had been flushed.
    Flushed,
}

/// There is no memory although no item is left to evict: values that are being sent take all of it.
#[derive(Debug)]
pub(crate) struct OutOfMemory;

/// All items of a cache.
pub(crate) struct Items {
    table: TwoSidedTable,
    /// The node of the object that begins on each line; `NONE` if none does.
    owners: Vec<u32>,
    nodes: Vec<Node>,
    free: Vec<u32>,
    lru: Lru,
    capacity: u32,
    /// The node at which the sweep continues.
    hand: u32,
    /// Items with a lower number were flushed.
    flushed: u64,
    bytes: u64,
    gone: Gone,
    classes: [Class; CLASSES],
    /// Number of nodes that `lru_crawler crawl` has yet to examine.
    crawl: u32,
    /// Maximum number of lines that may be in use.
    most_lines: usize,
    started: Instant,
    /// The buckets in which chains find the items.
    buckets: Option<Buckets>,
    /// Time at which all items expire that exist then.
    ends: Instant,
}

impl Items {
    pub(crate) fn new(config: &Config, memory: Registered, now: Instant) -> Items {
        let lines = memory.bytes.len() / two_sided::LINE;
        let table =
            TwoSidedTable::new(two_sided::Config { keys: config.items, hash_seed: config.hash_seed }, memory);
        Items {
            table,
            owners: vec![NONE; lines],
            nodes: Vec::with_capacity(config.items as usize),
            free: Vec::with_capacity(config.items as usize),
            lru: Lru::new(config.items),
            capacity: config.items,
            hand: 0,
            flushed: 0,
            bytes: 0,
            gone: Gone::default(),
            classes: [Class::default(); CLASSES],
            crawl: 0,
            most_lines: lines,
            started: now,
            buckets: None,
            ends: Instant::NEVER,
        }
    }

    /// Publishes items that are stored from now on in these buckets, where chains find them.
    pub(crate) fn show(&mut self, buckets: Registered, seed: u64) {
        self.buckets = Some(Buckets::new(buckets, self.capacity, seed));
    }

    /// Returns the directory for clients of chains, or `None` if there are no buckets.
    pub(crate) fn directory(&self) -> Option<Directory> {
        Some(self.buckets.as_ref()?.directory())
    }

    /// Returns the number of items, including dead ones that were not detected yet.
    pub(crate) fn len(&self) -> u64 {
        self.table.len()
    }

    /// Returns the total length of keys and values in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the bytes of memory for keys and values.
    pub(crate) fn memory(&self) -> usize {
        self.most_lines * two_sided::LINE
    }

    /// Returns the bytes of that memory that are in use.
    pub(crate) fn taken(&self) -> usize {
        (self.owners.len() - self.table.free_lines() as usize) * two_sided::LINE
    }

    /// Limits the memory for keys and values, once later stores have freed the excess. Returns false if
    /// there is less memory than `bytes`.
    pub(crate) fn limit(&mut self, bytes: usize) -> bool {
        let lines = bytes / two_sided::LINE;
        let possible = lines <= self.owners.len();
        if possible {
            self.most_lines = lines;
        }
        possible
    }

    #[cfg(test)]
    pub(crate) fn free_lines(&self) -> u32 {
        self.table.free_lines()
    }

    /// Returns the counters of dropped items.
    pub(crate) fn gone(&self) -> Gone {
        self.gone
    }

    /// Flushes all items with a number below `unique`.
    pub(crate) fn flush(&mut self, unique: u64) {
        self.flushed = unique;
        self.ends = Instant::NEVER;
        // A chain does not check the number that divides live from dead items.
        if let Some(buckets) = &mut self.buckets {
            (0..self.nodes.len() as u32).for_each(|node| buckets.remove(node));
        }
    }

    /// Announces that all items that exist at that time will be [flushed](Items::flush), so that chains stop
    /// returning them even if no command arrives.
    pub(crate) fn end_by(&mut self, time: Instant) {
        self.ends = time;
        if let Some(buckets) = &mut self.buckets {
            buckets.end_by(time);
        }
    }

    /// Returns the live item of `key`. A dead item is removed.
    pub(crate) fn find(&mut self, key: &[u8], now: Instant) -> Option<Name> {
        self.look_up(key, now).ok()
    }

    /// Returns the live item of `key`, or the reason for which there is none. A dead item is removed.
    pub(crate) fn look_up(&mut self, key: &[u8], now: Instant) -> Result<Name, Missing> {
        let stored = self.table.find(key).map_err(|_| Missing::Absent)?;
        let name = Name(self.owners[stored.line()]);
        if self.is_dead(name, now) {
            let flushed = self.node(name).attributes.unique < self.flushed;
            self.reclaim(name);
            return Err(if flushed { Missing::Flushed } else { Missing::Expired });
        }
        Ok(name)
    }

    fn is_dead(&self, name: Name, now: Instant) -> bool {
        let Attributes { expires, unique, .. } = self.node(name).attributes;
        expires <= now || unique < self.flushed
    }

    /// Returns the attributes of an item.
    pub(crate) fn attributes(&self, name: Name) -> Attributes {
        self.node(name).attributes
    }

    /// Sets the time at which an item expires.
    pub(crate) fn set_expiry(&mut self, name: Name, expires: Instant) {
        self.nodes[name.0 as usize].attributes.expires = expires;
        if let Some(buckets) = &mut self.buckets {
            buckets.expires(name.0, expires.min(self.ends));
        }
    }

    /// Returns the location of the item's value.
    pub(crate) fn stored(&self, name: Name) -> Stored {
        self.node(name).stored
    }

    fn node(&self, name: Name) -> &Node {
        &self.nodes[name.0 as usize]
    }

    /// Notes that the item is used now, so that it is the last to be evicted.
    pub(crate) fn touch(&mut self, name: Name, now: Instant) {
        self.lru.touch(name.0);
        self.nodes[name.0 as usize].accessed = self.seconds(now);
    }

    /// Notes that a client has read the item.
    pub(crate) fn fetch(&mut self, name: Name, now: Instant) {
        self.touch(name, now);
        self.nodes[name.0 as usize].attributes.marks.fetched = true;
    }

    /// Returns the seconds since the item was used.
    pub(crate) fn idle(&self, name: Name, now: Instant) -> u32 {
        self.seconds(now).saturating_sub(self.node(name).accessed)
    }

    fn seconds(&self, now: Instant) -> u32 {
        u32::try_from(now.since(self.started) / 1_000_000_000).unwrap_or(u32::MAX)
    }

    /// Sets the marks of an item.
    pub(crate) fn mark(&mut self, name: Name, marks: Marks) {
        self.nodes[name.0 as usize].attributes.marks = marks;
    }

    /// Marks an item as out of date, and gives it another number.
    pub(crate) fn invalidate(&mut self, name: Name, unique: u64) {
        let attributes = &mut self.nodes[name.0 as usize].attributes;
        attributes.unique = unique;
        (attributes.marks.stale, attributes.marks.won) = (true, false);
        let mut key = [0; MAX_KEY];
        let len = self.key(name, &mut key);
        self.show_item(name, &key[..len]);
    }

    /// Copies the key of an item, and returns the key's length.
    pub(crate) fn key(&self, name: Name, key: &mut [u8; MAX_KEY]) -> usize {
        let Node { stored, key_len, .. } = *self.node(name);
        // In an object the key precedes the value.
        self.table.values().read(stored.offset - usize::from(key_len), &mut key[..key_len.into()]);
        key_len.into()
    }

    /// Returns the number of places of items.
    pub(crate) fn places(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the live item in a place, if there is one.
    pub(crate) fn at(&self, place: u32, now: Instant) -> Option<Name> {
        let node = self.nodes.get(place as usize)?;
        Some(Name(place)).filter(|name| node.used && !self.is_dead(*name, now))
    }

    /// Copies `out.len()` bytes of stored values from this offset.
    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) {
        self.table.values().read(offset, out);
    }

    /// Keeps a value in place, even if its item is removed or changed.
    pub(crate) fn hold(&mut self, stored: Stored) {
        self.table.hold(stored.hold);
    }

    /// Ends a hold.
    pub(crate) fn release(&mut self, stored: Stored) {
        self.table.release(stored.hold);
    }

    /// Writes a part of a value that is not published yet.
    pub(crate) fn fill(&mut self, draft: &Draft, offset: usize, data: &[u8]) {
        self.table.fill(draft, offset, data);
    }

    /// Copies a stored value into one that is not published yet.
    pub(crate) fn fill_from(&mut self, draft: &Draft, mut target_offset: usize, source: Stored) {
        let mut piece = [0; 4096];
        let (mut offset, end) = (source.offset, source.offset + source.len);
        while offset < end {
            let piece = &mut piece[..(end - offset).min(4096)];
            self.read(offset, piece);
            self.table.fill(draft, target_offset, piece);
            (target_offset, offset) = (target_offset + piece.len(), offset + piece.len());
        }
    }

    /// Frees a value that was not published.
    pub(crate) fn discard(&mut self, draft: Draft) {
        self.table.discard(draft);
    }

    /// Stores a value under a new or existing key.
    pub(crate) fn publish(&mut self, key: &[u8], draft: Draft, attributes: Attributes, now: Instant) -> Name {
        let old = self.table.find(key).ok().map(|stored| self.owners[stored.line()]);
        let number = match old {
            Some(number) => {
                self.forget(Name(number));
                number
            }
            None => self.number(now),
        };
        let Ok(stored) = self.table.publish(key, draft) else {
            unreachable!("there are as many nodes as keys, and one of them was free")
        };
        let accessed = self.seconds(now);
        let node = Node { stored, key_len: key.len() as u8, used: true, accessed, attributes };
        match self.nodes.get_mut(number as usize) {
            Some(place) => *place = node,
            None => self.nodes.push(node),
        }
        self.owners[stored.line()] = number;
        self.bytes += (key.len() + stored.len) as u64;
        let class = &mut self.classes[node.class()];
        class.number += 1;
        class.requested += node.size() as u64;
        self.lru.push(number);
        self.show_item(Name(number), key);
        Name(number)
    }

    /// Publishes the current state of an item in the buckets, for chains.
    fn show_item(&mut self, name: Name, key: &[u8]) {
        let Node { stored, attributes, .. } = *self.node(name);
        if let Some(buckets) = &mut self.buckets {
            // In an object the key precedes the value.
            let offset = stored.offset - key.len();
            let len = key.len() + stored.len;
            let expires = attributes.expires.min(self.ends);
            buckets.put(name.0, key, self.table.values(), offset, len, Attributes { expires, ..attributes });
        }
    }

    /// Removes an item from the statistics.
    fn forget(&mut self, Name(number): Name) {
        let node = self.nodes[number as usize];
        self.owners[node.stored.line()] = NONE;
        self.bytes -= (usize::from(node.key_len) + node.stored.len) as u64;
        let class = &mut self.classes[node.class()];
        class.number -= 1;
        class.requested -= node.size() as u64;
        self.lru.remove(number);
    }

    /// Returns the number of a free node. If none is free, the oldest item is evicted.
    fn number(&mut self, now: Instant) -> u32 {
        if self.free.is_empty() && self.nodes.len() < self.capacity as usize {
            return self.nodes.len() as u32;
        }
        if self.free.is_empty() {
            let oldest = self.lru.oldest().expect("no node is free, so there are items");
            self.drop_item(Name(oldest), now);
        }
        self.free.pop().expect("one was freed")
    }

    /// Removes an item.
    pub(crate) fn remove(&mut self, name: Name) {
        let mut key = [0; MAX_KEY];
        let len = self.key(name, &mut key);
        self.table.delete(&key[..len]).expect("an item is in the table");
        self.forget(name);
        self.nodes[name.0 as usize].used = false;
        self.free.push(name.0);
        if let Some(buckets) = &mut self.buckets {
            buckets.remove(name.0);
        }
    }
}
