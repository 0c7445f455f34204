//! The items: objects of the table, a node beside each, and what goes when there is no room.

use super::buckets::{Buckets, Directory};
use super::lru::{Lru, NONE};
use super::{Config, MAX_KEY};
use crate::kv::two_sided::{self, Draft, TwoSidedTable};
use crate::kv::{Registered, Stored, Table};
use transport::Instant;

/// Items dropped one by one, oldest first, before all that lies in the way of a long object goes: what the oldest leave may
/// be scattered, and a long object must lie in one piece.
const ONE_BY_ONE: u32 = 8;
/// Nodes looked at, at each store, for items that are dead: so memory comes back though nobody asks for them.
const SWEEP: u32 = 2;

/// What memcached keeps beside a value.
#[derive(Copy, Clone, Debug)]
pub struct Attributes {
    /// The client's own.
    pub flags: u32,
    /// Dead from then on.
    pub expires: Instant,
    /// The number for `cas`: another one after each change.
    pub unique: u64,
}

/// Names an item until it is removed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Name(u32);

#[derive(Copy, Clone)]
struct Node {
    stored: Stored,
    key_len: u8,
    /// Is there an item?
    used: bool,
    attributes: Attributes,
}

/// How an item was found to be dead, or went.
#[derive(Copy, Clone, Debug, Default)]
pub struct Gone {
    /// Alive, for room.
    pub evicted: u64,
    /// Dead, found by the sweep or when asked for.
    pub reclaimed: u64,
}

/// No room though nothing is left to drop: all of it is taken by values on their way.
#[derive(Debug)]
pub struct NoRoom;

/// All items.
pub struct Items {
    table: TwoSidedTable,
    /// The node of the object that begins on each line; `NONE` where none does.
    owners: Vec<u32>,
    nodes: Vec<Node>,
    free: Vec<u32>,
    lru: Lru,
    capacity: u32,
    /// Where the sweep goes on.
    hand: u32,
    /// Items with a lower number were flushed.
    flushed: u64,
    bytes: u64,
    gone: Gone,
    /// Where chains find them.
    buckets: Option<Buckets>,
    /// When all that is there then dies.
    ends: Instant,
}

impl Items {
    pub fn new(config: &Config, memory: Registered) -> Items {
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
            buckets: None,
            ends: Instant::NEVER,
        }
    }

    /// What is stored from now on is found by chains, too, in these buckets.
    pub fn show(&mut self, buckets: Registered, seed: u64) {
        self.buckets = Some(Buckets::new(buckets, self.capacity, seed));
    }

    /// How clients of chains find it.
    pub fn directory(&self) -> Option<Directory> {
        Some(self.buckets.as_ref()?.directory())
    }

    /// Items in it, dead ones that were not found yet among them.
    pub fn len(&self) -> u64 {
        self.table.len()
    }

    /// Bytes of their keys and values.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes for keys and values in all.
    pub fn memory(&self) -> usize {
        self.table.values().bytes.len()
    }

    #[cfg(test)]
    pub fn free_lines(&self) -> u32 {
        self.table.free_lines()
    }

    /// What went by itself.
    pub fn gone(&mut self) -> &mut Gone {
        &mut self.gone
    }

    /// All items with a number below `unique` are dead.
    pub fn flush(&mut self, unique: u64) {
        self.flushed = unique;
        self.ends = Instant::NEVER;
        // Nobody tells a chain of a number.
        if let Some(buckets) = &mut self.buckets {
            (0..self.nodes.len() as u32).for_each(|node| buckets.remove(node));
        }
    }

    /// All that is there then will be [flushed](Items::flush), even if nobody asks.
    pub fn end_by(&mut self, at: Instant) {
        self.ends = at;
        if let Some(buckets) = &mut self.buckets {
            buckets.end_by(at);
        }
    }

    /// The live item of `key`; a dead one goes.
    pub fn find(&mut self, key: &[u8], now: Instant) -> Option<Name> {
        let stored = self.table.find(key).ok()?;
        let name = Name(self.owners[stored.line()]);
        if self.is_dead(name, now) {
            self.gone.reclaimed += 1;
            self.remove(name);
            return None;
        }
        Some(name)
    }

    fn is_dead(&self, name: Name, now: Instant) -> bool {
        let Attributes { expires, unique, .. } = self.node(name).attributes;
        expires <= now || unique < self.flushed
    }

    /// What is kept beside its value.
    pub fn attributes(&self, name: Name) -> Attributes {
        self.node(name).attributes
    }

    /// It lives until then.
    pub fn set_expiry(&mut self, name: Name, expires: Instant) {
        self.nodes[name.0 as usize].attributes.expires = expires;
        if let Some(buckets) = &mut self.buckets {
            buckets.expires(name.0, expires.min(self.ends));
        }
    }

    /// Where its value lies.
    pub fn stored(&self, name: Name) -> Stored {
        self.node(name).stored
    }

    fn node(&self, name: Name) -> &Node {
        &self.nodes[name.0 as usize]
    }

    /// It was used.
    pub fn touch(&mut self, name: Name) {
        self.lru.touch(name.0);
    }

    /// Copies bytes of a stored value.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.table.values().read(offset, out);
    }

    /// Keeps a value where it is, whatever happens to its item.
    pub fn hold(&mut self, stored: Stored) {
        self.table.hold(stored.hold);
    }

    /// Ends a hold.
    pub fn release(&mut self, stored: Stored) {
        self.table.release(stored.hold);
    }

    /// Room for a value, for which others go if they must; also the item of `key` itself.
    ///
    /// # Errors
    /// `NoRoom`, and then no item is left.
    pub fn draft(&mut self, key: &[u8], len: usize, now: Instant) -> Result<Draft, NoRoom> {
        self.sweep(now);
        let mut dropped = 0;
        loop {
            if let Ok(draft) = self.table.draft(key, len) {
                return Ok(draft);
            }
            let oldest = Name(self.lru.oldest().ok_or(NoRoom)?);
            if dropped < ONE_BY_ONE {
                self.drop_item(oldest, now);
            } else {
                self.clear(self.stored(oldest).line(), TwoSidedTable::lines(key.len(), len), now);
            }
            dropped += 1;
        }
    }

    /// Drops all items in `lines` lines from about `line` on.
    fn clear(&mut self, line: usize, lines: usize, now: Instant) {
        let from = line.min(self.owners.len().saturating_sub(lines));
        // An object that begins before may reach in.
        let before = (0..from).rev().take(TwoSidedTable::lines(MAX_KEY, super::MAX_VALUE));
        let before = before.map(|at| self.owners[at]).find(|owner| *owner != NONE).map(Name);
        if let Some(name) = before {
            let node = self.node(name);
            let taken = TwoSidedTable::lines(node.key_len.into(), node.stored.len);
            if node.stored.line() + taken > from {
                self.drop_item(name, now);
            }
        }
        for at in from..(from + lines).min(self.owners.len()) {
            if self.owners[at] != NONE {
                self.drop_item(Name(self.owners[at]), now);
            }
        }
    }

    /// Removes an item for room.
    fn drop_item(&mut self, name: Name, now: Instant) {
        let count = if self.is_dead(name, now) { &mut self.gone.reclaimed } else { &mut self.gone.evicted };
        *count += 1;
        self.remove(name);
    }

    /// Looks at some nodes for items that are dead.
    fn sweep(&mut self, now: Instant) {
        for _ in 0..SWEEP.min(self.nodes.len() as u32) {
            self.hand = (self.hand + 1) % self.nodes.len() as u32;
            let name = Name(self.hand);
            if self.node(name).used && self.is_dead(name, now) {
                self.gone.reclaimed += 1;
                self.remove(name);
            }
        }
    }

    /// Writes into a value that is on its way in.
    pub fn fill(&mut self, draft: &Draft, at: usize, data: &[u8]) {
        self.table.fill(draft, at, data);
    }

    /// Writes a stored value into one that is on its way in.
    pub fn fill_from(&mut self, draft: &Draft, mut at: usize, from: Stored) {
        let mut piece = [0; 4096];
        let (mut offset, end) = (from.offset, from.offset + from.len);
        while offset < end {
            let piece = &mut piece[..(end - offset).min(4096)];
            self.read(offset, piece);
            self.table.fill(draft, at, piece);
            (at, offset) = (at + piece.len(), offset + piece.len());
        }
    }

    /// A value that did not become an item.
    pub fn discard(&mut self, draft: Draft) {
        self.table.discard(draft);
    }

    /// Stores a value under its key, new or not.
    pub fn publish(&mut self, key: &[u8], draft: Draft, attributes: Attributes, now: Instant) {
        let old = self.table.find(key).ok().map(|stored| self.owners[stored.line()]);
        let number = match old {
            Some(number) => {
                let stored = self.nodes[number as usize].stored;
                self.owners[stored.line()] = NONE;
                self.bytes -= (key.len() + stored.len) as u64;
                self.lru.remove(number);
                number
            }
            None => self.number(now),
        };
        let Ok(stored) = self.table.publish(key, draft) else {
            unreachable!("there are as many nodes as keys, and one of them was free")
        };
        let node = Node { stored, key_len: key.len() as u8, used: true, attributes };
        match self.nodes.get_mut(number as usize) {
            Some(place) => *place = node,
            None => self.nodes.push(node),
        }
        self.owners[stored.line()] = number;
        self.bytes += (key.len() + stored.len) as u64;
        self.lru.push(number);
        if let Some(buckets) = &mut self.buckets {
            // In an object the key lies right before the value.
            let lies = (self.table.values(), stored.offset - key.len(), key.len() + stored.len);
            let expires = attributes.expires.min(self.ends);
            buckets.put(number, key, lies, Attributes { expires, ..attributes });
        }
    }

    /// The number of a node that is free; the oldest item goes if none is.
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
    pub fn remove(&mut self, name: Name) {
        let Node { stored, key_len, .. } = *self.node(name);
        let mut key = [0; MAX_KEY];
        let key = &mut key[..key_len.into()];
        // In an object the key lies right before the value.
        self.table.values().read(stored.offset - key.len(), key);
        self.table.delete(key).expect("an item is in the table");
        self.owners[stored.line()] = NONE;
        self.nodes[name.0 as usize].used = false;
        self.bytes -= (key.len() + stored.len) as u64;
        self.lru.remove(name.0);
        self.free.push(name.0);
        if let Some(buckets) = &mut self.buckets {
            buckets.remove(name.0);
        }
    }
}
