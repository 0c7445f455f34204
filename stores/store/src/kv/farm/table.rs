//! The server's table, which is the only writer of its memory.

use super::bucket::{Bucket, CHAIN_MOST, FarmSlot, SLOTS, home, tag};
use super::line::{
    LINE, LOCKED, OBJECT_HEADER, ObjectHeader, PAYLOAD, lines_for, next_version, store_fresh, store_locked,
};
use crate::kv::extents::{Extent, Extents};
use crate::kv::hash::hash_key;
use crate::kv::listing::push;
use crate::kv::moves::Moves;
use crate::kv::rpc::Refusal;
use crate::kv::session::Design;
use crate::kv::table::{Table, TableGrant};
use crate::region::{Region, Registered};

mod reopen;

/// The size of a table.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Number of home buckets, of three slots each.
    pub buckets: u32,
    /// Number of blocks, of three slots each, for keys whose neighbourhood is full.
    pub blocks: u32,
    /// Seed of the key hash.
    pub hash_seed: u64,
}

impl Config {
    /// Returns the configuration for `keys` keys with three quarters of the slots taken.
    pub fn for_keys(keys: u32, hash_seed: u64) -> Config {
        let buckets = (u64::from(keys) * 4 / 9).min(u64::from(u32::MAX / 2)) as u32 + 2;
        Config { buckets, blocks: buckets / 16 + 8, hash_seed }
    }

    /// Returns the bytes of the index: the buckets, one more that is no key's home, and the chained blocks.
    pub fn index_len(&self) -> usize {
        self.lines() * LINE
    }

    fn lines(&self) -> usize {
        self.buckets as usize + 1 + self.blocks as usize
    }
}

/// Number of buckets that are searched for a free slot to hop to.
const HOP_RANGE: usize = 64;

/// A slot: the line of its bucket or block, and its index in that.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct SlotRef {
    line: usize,
    slot: usize,
}

/// The server's table. `index` and `extents` are registered for remote READs; only the table writes them.
pub struct FarmTable {
    index: Region,
    extents: Extents,
    /// The extent of each slot's object.
    held: Vec<[Option<Extent>; SLOTS]>,
    config: Config,
    keys: u64,
    moves: Moves,
    blocks_used: u32,
    /// Version of the object that was stored last.
    version: u32,
}

impl FarmTable {
    /// Returns an empty table in `index` ([`Config::index_len`] bytes), with its objects in `extents`.
    ///
    /// # Panics
    /// If the index block is too small or there are no buckets.
    pub fn new(config: Config, index: Registered, extents: Registered) -> FarmTable {
        assert!(
            config.buckets > 0 && index.bytes.len() >= config.index_len(),
            "the table's block is too small"
        );
        let lines = config.lines();
        let objects = u32::try_from(lines * SLOTS).unwrap_or(u32::MAX);
        let mut index = Region::new(index);
        for line in 0..lines {
            store_locked(&mut index, line * LINE, &Bucket::default().emit());
        }
        FarmTable {
            index,
            extents: Extents::new(extents, objects),
            held: vec![[None; SLOTS]; lines],
            config,
            keys: 0,
            moves: Moves::default(),
            blocks_used: 0,
            version: LOCKED,
        }
    }

    /// Returns the number of free 64-byte lines of the extents.
    pub fn free_lines(&self) -> u32 {
        self.extents.free_lines()
    }

    /// Returns the number of chained blocks in use. A block stays with its bucket for ever: a reader on a
    /// chain must never reach another chain.
    pub fn blocks_used(&self) -> u32 {
        self.blocks_used
    }

    fn load(&self, line: usize) -> Bucket {
        let mut payload = [0; PAYLOAD];
        self.index.read(line * LINE + 4, &mut payload);
        Bucket::parse(&payload)
    }

    fn publish(&mut self, line: usize, bucket: &Bucket) {
        store_locked(&mut self.index, line * LINE, &bucket.emit());
    }

    fn set(&mut self, place: SlotRef, slot: FarmSlot) {
        let mut bucket = self.load(place.line);
        bucket.slots[place.slot] = slot;
        self.publish(place.line, &bucket);
    }

    fn home(&self, hash: u64) -> usize {
        home(hash, self.config.buckets.into()) as usize
    }

    /// Returns the lines that may hold a key of this home: two buckets and the chain.
    fn lines_of(&self, home: usize) -> impl Iterator<Item = usize> {
        let chain = |line: usize| match self.load(line).chain {
            0 => None,
            block => Some(self.config.buckets as usize + block as usize),
        };
        [home, home + 1].into_iter().chain(core::iter::successors(chain(home), move |&block| chain(block)))
    }

    /// Returns the slot that holds `key`.
    fn locate(&self, hash: u64, key: &[u8]) -> Option<SlotRef> {
        self.lines_of(self.home(hash)).find_map(|line| {
            let slots = self.load(line).slots;
            let mine = |slot: &FarmSlot| slot.is_taken() && slot.tag == tag(hash) && self.is(slot, hash, key);
            slots.iter().position(mine).map(|slot| SlotRef { line, slot })
        })
    }

    fn header(&self, slot: &FarmSlot) -> ObjectHeader {
        let mut header = [0; OBJECT_HEADER];
        self.extents.region.read(slot.line as usize * LINE + 4, &mut header);
        ObjectHeader::parse(&header)
    }

    /// Returns true if the slot's object belongs to `key`.
    fn is(&self, slot: &FarmSlot, hash: u64, key: &[u8]) -> bool {
        let header = self.header(slot);
        if header.hash != hash || header.key_len as usize != key.len() {
            return false;
        }
        let mut offset = OBJECT_HEADER;
        let mut rest = key;
        while !rest.is_empty() {
            let line = slot.line as usize + offset / PAYLOAD;
            let within = offset % PAYLOAD;
            let (expected, later) = rest.split_at(rest.len().min(PAYLOAD - within));
            let mut stored = [0; PAYLOAD];
            self.extents.region.read(line * LINE + 4 + within, &mut stored[..expected.len()]);
            if stored[..expected.len()] != *expected {
                return false;
            }
            (offset, rest) = (offset + expected.len(), later);
        }
        true
    }

    /// Reads the key of an object into `key`.
    fn read_key(&self, slot: &FarmSlot, key: &mut [u8]) {
        let mut offset = OBJECT_HEADER;
        let mut rest = key;
        while !rest.is_empty() {
            let line = slot.line as usize + offset / PAYLOAD;
            let within = offset % PAYLOAD;
            let (piece, later) = rest.split_at_mut(rest.len().min(PAYLOAD - within));
            self.extents.region.read(line * LINE + 4 + within, piece);
            (offset, rest) = (offset + piece.len(), later);
        }
    }

    fn free_in(&self, line: usize) -> Option<SlotRef> {
        let slot = self.load(line).slots.iter().position(|slot| !slot.is_taken())?;
        Some(SlotRef { line, slot })
    }

    /// Returns a free slot for a new key: in its neighbourhood, else by hopping, else in its chain.
    ///
    /// # Errors
    /// `TableFull`: the chain has its maximum length or no block is left.
    fn make_space(&mut self, home: usize) -> Result<SlotRef, Refusal> {
        let near = self.free_in(home).or_else(|| self.free_in(home + 1));
        match near.or_else(|| self.hop(home)) {
            Some(place) => Ok(place),
            None => self.chain(home),
        }
    }

    /// Moves the nearest free slot after the neighbourhood into it. Each step moves a key from its home
    /// bucket to the next one.
    fn hop(&mut self, home: usize) -> Option<SlotRef> {
        let last = (home + HOP_RANGE).min(self.config.buckets as usize);
        let mut gap = (home + 2..=last).find_map(|line| self.free_in(line))?;
        while gap.line > home + 1 {
            let line = gap.line - 1;
            let at_home = |slot: &FarmSlot| self.home(self.header(slot).hash) == line;
            let slot = self.load(line).slots.iter().position(at_home)?;
            let source = SlotRef { line, slot };
            self.move_right(source, gap);
            gap = source;
        }
        Some(gap)
    }

    /// Moves a key to the next bucket, where it appears before it leaves the old one. Both joints are
    /// incremented, so a reader detects that it read one bucket after the move and the other before it.
    fn move_right(&mut self, occupied: SlotRef, gap: SlotRef) {
        let mut source = self.load(occupied.line);
        let mut target = self.load(gap.line);
        target.slots[gap.slot] = core::mem::take(&mut source.slots[occupied.slot]);
        source.right = source.right.wrapping_add(1);
        target.left = source.right;
        self.publish(gap.line, &target);
        self.publish(occupied.line, &source);
        self.held[gap.line][gap.slot] = self.held[occupied.line][occupied.slot].take();
        self.moves.note((gap.line * SLOTS + gap.slot) as u64);
    }

    /// Returns a free slot in the chain of `home`, which grows by a block if necessary.
    fn chain(&mut self, home: usize) -> Result<SlotRef, Refusal> {
        let blocks = || self.lines_of(home).skip(2);
        if let Some(place) = blocks().find_map(|line| self.free_in(line)) {
            return Ok(place);
        }
        let length = blocks().count();
        if length == CHAIN_MOST || self.blocks_used == self.config.blocks {
            return Err(Refusal::TableFull);
        }
        let end = blocks().last().unwrap_or(home);
        self.blocks_used += 1;
        let mut bucket = self.load(end);
        bucket.chain = self.blocks_used;
        self.publish(end, &bucket);
        Ok(SlotRef { line: self.config.buckets as usize + self.blocks_used as usize, slot: 0 })
    }

    /// Stores an object in fresh lines, under a version of its own.
    fn store(&mut self, hash: u64, key: &[u8], value: &[u8]) -> Result<(Extent, FarmSlot), Refusal> {
        let lines = lines_for(key.len(), value.len());
        let extent = self.extents.allocate(lines * LINE)?;
        self.version = next_version(self.version);
        let mut header = [0; OBJECT_HEADER];
        ObjectHeader { hash, key_len: key.len() as u32, value_len: value.len() as u32 }.emit(&mut header);
        let mut parts: [&[u8]; 3] = [&header, key, value];
        for line in 0..lines {
            let offset = extent.offset() + line * LINE;
            // Most lines of a long value contain nothing but a piece of the value.
            if let ([[], [], _], Some((payload, rest))) = (&parts, parts[2].split_first_chunk()) {
                store_fresh(&mut self.extents.region, offset, self.version, payload);
                parts[2] = rest;
            } else {
                let payload = take_payload(&mut parts);
                store_fresh(&mut self.extents.region, offset, self.version, &payload);
            }
        }
        let slot =
            FarmSlot { line: extent.line(), lines: lines as u16, tag: tag(hash), version: self.version };
        Ok((extent, slot))
    }
}

/// Returns the next 56 bytes of `parts`, padded with zeros after the last one.
fn take_payload(parts: &mut [&[u8]]) -> [u8; PAYLOAD] {
    let mut payload = [0; PAYLOAD];
    let mut end = 0;
    for part in parts {
        let (taken, rest) = part.split_at(part.len().min(PAYLOAD - end));
        payload[end..end + taken.len()].copy_from_slice(taken);
        end += taken.len();
        *part = rest;
    }
    payload
}

impl Table for FarmTable {
    const DESIGN: Design = Design::Farm;

    fn grant(&self) -> TableGrant {
        TableGrant {
            index: self.index.block().remote(),
            index_len: self.config.buckets.into(),
            extents: self.extents.region.block().remote(),
            hash_seed: self.config.hash_seed,
        }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        let hash = hash_key(self.config.hash_seed, key);
        let (extent, slot) = self.store(hash, key, value)?;
        let place = match self.locate(hash, key) {
            Some(place) => Ok(place),
            None => self.make_space(self.home(hash)).inspect(|_| self.keys += 1),
        };
        let Ok(place) = place else {
            self.extents.free(extent);
            return place.map(|_| ());
        };
        self.set(place, slot);
        if let Some(old) = self.held[place.line][place.slot].replace(extent) {
            self.extents.free(old);
        }
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Refusal> {
        let hash = hash_key(self.config.hash_seed, key);
        let place = self.locate(hash, key).ok_or(Refusal::Absent)?;
        self.set(place, FarmSlot::default());
        if let Some(old) = self.held[place.line][place.slot].take() {
            self.extents.free(old);
        }
        self.keys -= 1;
        Ok(())
    }

    fn values(&self) -> &Registered {
        self.extents.region.block()
    }

    fn positions(&self) -> u64 {
        (self.config.lines() * SLOTS) as u64
    }

    fn key_at(&self, position: u64, page: &mut Vec<u8>) {
        let slot = self.load(position as usize / SLOTS).slots[position as usize % SLOTS];
        if slot.is_taken() {
            let len = self.header(&slot).key_len as usize;
            push(page, len, |key| self.read_key(&slot, key));
        }
    }

    fn moves(&self) -> &Moves {
        &self.moves
    }

    fn len(&self) -> u64 {
        self.keys
    }
}
