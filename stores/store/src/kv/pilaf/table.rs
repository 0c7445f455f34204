//! The server's table, which is the only writer of its memory.

use super::client::WAYS;
use super::entry::{ENTRY, PilafEntry};
use crate::kv::checksum::crc64;
use crate::kv::extents::{Extent, Extents};
use crate::kv::hash::{choice, hash_key};
use crate::kv::listing::push;
use crate::kv::moves::Moves;
use crate::kv::rpc::Refusal;
use crate::kv::session::Design;
use crate::kv::table::{Table, TableGrant};
use crate::region::{Region, Registered};
use crate::words::u64_at;

/// The size of a table.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Number of entries. With up to 3/4 of them taken a GET reads 1.6 entries on average (Pilaf §4.3).
    /// Beyond 9/10 the table begins to refuse PUTs of new keys.
    pub entries: u32,
    /// Seed of the key hash.
    pub hash_seed: u64,
}

impl Config {
    /// Returns the configuration for `keys` keys with three quarters of the entries taken.
    pub fn for_keys(keys: u32, hash_seed: u64) -> Config {
        Config { entries: keys.saturating_add(keys / 3).saturating_add(8), hash_seed }
    }

    /// Returns the bytes of the index.
    pub fn index_len(&self) -> usize {
        self.entries as usize * ENTRY
    }
}

/// Maximum number of entries that the search for a free one visits before a new key is refused. A cuckoo
/// search has no natural end.
const SEARCH: usize = 512;

/// An entry that the search reached, and the search node whose key would move to it.
#[derive(Copy, Clone)]
struct Node {
    entry: u32,
    parent: u16,
}

const ROOT: u16 = u16::MAX;

/// The server's table. `index` and `extents` are registered for remote READs; only the table writes them.
pub struct PilafTable {
    index: Region,
    extents: Extents,
    /// The extent of each entry's object.
    held: Vec<Option<Extent>>,
    config: Config,
    keys: u64,
    moves: Moves,
    search: Vec<Node>,
    /// A buffer in which an object is composed.
    scratch: Vec<u8>,
}

impl PilafTable {
    /// Returns an empty table in `index` ([`Config::index_len`] bytes), with its objects in `extents`.
    ///
    /// # Panics
    /// If the index block is too small, there are no entries, or the extents begin at address 0.
    pub fn new(config: Config, index: Registered, extents: Registered) -> PilafTable {
        assert!(
            config.entries > 0 && index.bytes.len() >= config.index_len(),
            "the table's block is too small"
        );
        assert!(extents.addr != 0, "address 0 means an empty entry");
        let mut table = PilafTable {
            index: Region::new(index),
            extents: Extents::new(extents, config.entries),
            held: vec![None; config.entries as usize],
            config,
            keys: 0,
            moves: Moves::default(),
            search: Vec::with_capacity(SEARCH),
            scratch: Vec::with_capacity(2 << 20),
        };
        let empty = PilafEntry::default().emit();
        for entry in 0..config.entries {
            table.index.write(entry as usize * ENTRY, &empty);
        }
        table
    }

    /// Returns the number of free 64-byte lines of the extents.
    pub fn free_lines(&self) -> u32 {
        self.extents.free_lines()
    }

    fn load(&self, entry: u32) -> PilafEntry {
        let mut bytes = [0; ENTRY];
        self.index.read(entry as usize * ENTRY, &mut bytes);
        PilafEntry::unverified(&bytes)
    }

    /// Stores an entry, after everything that it points to. A reader that reads in between sees a CRC that
    /// does not match.
    fn publish(&mut self, entry: u32, mut content: PilafEntry) {
        content.version = self.load(entry).version + 1;
        let bytes = content.emit();
        self.index.barrier();
        for offset in (0..ENTRY).step_by(8) {
            self.index.store(entry as usize * ENTRY + offset, u64_at(&bytes, offset));
        }
        self.index.barrier();
    }

    fn ways(&self, hash: u64) -> [u32; WAYS] {
        core::array::from_fn(|way| choice(hash, way, self.config.entries.into()) as u32)
    }

    /// Returns the entry that holds `key`.
    fn locate(&self, hash: u64, key: &[u8]) -> Option<u32> {
        self.ways(hash).into_iter().find(|&entry| {
            let stored = self.load(entry);
            stored.is_taken()
                && stored.hash == hash
                && stored.key_len as usize == key.len()
                && self.held[entry as usize].is_some_and(|extent| self.extents.equal(extent, 0, key))
        })
    }

    /// Frees one of the ways of `hash` by moving keys to their other ways. The search is breadth first, so
    /// the number of moves is minimal.
    ///
    /// # Errors
    /// `TableFull`: the search found no free entry among the [`SEARCH`] that it visited; nothing was moved.
    fn make_space(&mut self, hash: u64) -> Result<u32, Refusal> {
        self.search.clear();
        for entry in self.ways(hash) {
            if self.held[entry as usize].is_none() {
                return Ok(entry);
            }
            self.search.push(Node { entry, parent: ROOT });
        }
        for node in 0..SEARCH {
            let Some(&Node { entry, .. }) = self.search.get(node) else { break };
            let occupant = self.load(entry).hash;
            for next in self.ways(occupant) {
                if self.held[next as usize].is_none() {
                    return Ok(self.shift(node as u16, next));
                }
                if next != entry && self.search.len() < SEARCH {
                    self.search.push(Node { entry: next, parent: node as u16 });
                }
            }
        }
        Err(Refusal::TableFull)
    }

    /// Moves the keys on the path that ends in `node` one step towards `free`, the last one first. So a
    /// key is in its new entry before it leaves the old one. Returns the entry that becomes free.
    fn shift(&mut self, node: u16, free: u32) -> u32 {
        let mut node = node;
        let mut free = free;
        loop {
            let Node { entry, parent } = self.search[usize::from(node)];
            self.publish(free, self.load(entry));
            self.held[free as usize] = self.held[entry as usize].take();
            self.moves.note(free.into());
            if parent == ROOT {
                // The old copy is still in this entry; the new key overwrites it.
                return entry;
            }
            (node, free) = (parent, entry);
        }
    }

    /// Stores an object in fresh lines.
    fn store(&mut self, key: &[u8], value: &[u8]) -> Result<(Extent, PilafEntry), Refusal> {
        let extent = self.extents.allocate(key.len() + value.len())?;
        self.scratch.clear();
        self.scratch.extend_from_slice(key);
        self.scratch.extend_from_slice(value);
        self.extents.region.write(extent.offset(), &self.scratch);
        let entry = PilafEntry {
            address: self.extents.region.block().addr + extent.offset() as u64,
            key_len: key.len() as u32,
            value_len: value.len() as u32,
            object_crc: crc64(&self.scratch),
            ..PilafEntry::default()
        };
        Ok((extent, entry))
    }
}

impl Table for PilafTable {
    const DESIGN: Design = Design::Pilaf;

    fn grant(&self) -> TableGrant {
        TableGrant {
            index: self.index.block().remote(),
            index_len: self.config.entries.into(),
            extents: self.extents.region.block().remote(),
            hash_seed: self.config.hash_seed,
        }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        let hash = hash_key(self.config.hash_seed, key);
        let (extent, mut content) = self.store(key, value)?;
        content.hash = hash;
        let place = match self.locate(hash, key) {
            Some(entry) => Ok(entry),
            None => self.make_space(hash).inspect(|_| self.keys += 1),
        };
        let Ok(entry) = place else {
            self.extents.free(extent);
            return place.map(|_| ());
        };
        self.publish(entry, content);
        // Readers of the old object detect by its CRC that its lines were reused.
        if let Some(old) = self.held[entry as usize].replace(extent) {
            self.extents.free(old);
        }
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Refusal> {
        let hash = hash_key(self.config.hash_seed, key);
        let entry = self.locate(hash, key).ok_or(Refusal::Absent)?;
        self.publish(entry, PilafEntry::default());
        if let Some(old) = self.held[entry as usize].take() {
            self.extents.free(old);
        }
        self.keys -= 1;
        Ok(())
    }

    fn values(&self) -> &Registered {
        self.extents.region.block()
    }

    fn positions(&self) -> u64 {
        self.config.entries.into()
    }

    fn key_at(&self, position: u64, page: &mut Vec<u8>) {
        let Some(extent) = self.held[position as usize] else { return };
        let len = self.load(position as u32).key_len as usize;
        push(page, len, |key| self.extents.region.read(extent.offset(), key));
    }

    fn moves(&self) -> &Moves {
        &self.moves
    }

    fn len(&self) -> u64 {
        self.keys
    }
}
