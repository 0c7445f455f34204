//! Two-sided: every operation is a call, and only the server touches the table.
//!
//! The index is a SwissTable of the server. Objects lie in registered memory only because long values are
//! sent from where they are stored. Nothing is torn: the one core that changes the table also answers from
//! it. A value that is being sent is *held*: a PUT or DELETE of its key in the meantime leaves it in place.
//! Its lines are freed when the last response that it is in has left.
//!
//! ```text
//! object, on a line
//!  0  holds  u32   responses under way
//!  4  dead   u32   1: free it at the last release
//!  8  key, value
//! ```

pub(crate) use super::extents::LINE;
use super::extents::{Extent, Extents};
use super::hash::hash_key;
use super::listing::push;
use super::lookup::{Lookup, Step};
use super::moves::Moves;
use super::rpc::Refusal;
use super::session::{Design, Grant};
use super::table::{Hold, Stored, Table, TableGrant};
use crate::region::Registered;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use remora_memory::Key;
use remora_nic::Remote;

/// The client's side of the design: every lookup is a call.
#[derive(Copy, Clone, Debug)]
pub struct TwoSided;

impl Lookup for TwoSided {
    type Progress = ();
    const DESIGN: Design = Design::TwoSided;

    fn new(_: &Grant, _: usize) -> TwoSided {
        TwoSided
    }

    fn landing_len(_: usize, _: usize) -> usize {
        0
    }

    fn read_lens(_: usize, _: usize) -> Option<(usize, usize)> {
        None
    }

    fn begin(&self, (): &mut (), _: u64) -> Step {
        Step::Call
    }

    fn advance(&self, (): &mut (), _: &[u8], _: &mut [u8]) -> Step {
        Step::Call
    }

    fn tries((): &()) -> u32 {
        0
    }
}

/// The size of a table.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Maximum number of keys.
    pub keys: u32,
    /// Seed of the key hash.
    pub hash_seed: u64,
}

/// A key of the index.
struct Item {
    hash: u64,
    extent: Extent,
    key_len: u32,
    value_len: u32,
}

/// The server's table.
pub struct TwoSidedTable {
    index: HashTable<Item>,
    extents: Extents,
    config: Config,
    moves: Moves,
}

/// An object that is still being written. No lookup finds it before it is
/// [published](TwoSidedTable::publish).
///
/// A draft must be passed to `publish` or [`discard`](TwoSidedTable::discard) of its table.
pub struct Draft {
    extent: Extent,
    key_len: u32,
    value_len: u32,
}

impl Draft {
    fn value_at(&self) -> usize {
        self.extent.offset() + HEADER + self.key_len as usize
    }

    /// Returns the location of the value.
    pub(crate) fn stored(&self) -> Stored {
        Stored { offset: self.value_at(), len: self.value_len as usize, hold: Hold(self.extent) }
    }
}

/// Bytes before the key of an object.
const HEADER: usize = 8;
const DEAD: u64 = 1 << 32;

impl TwoSidedTable {
    /// Returns an empty table whose objects lie in `extents`. Its capacity is fixed by `config`.
    pub fn new(config: Config, extents: Registered) -> TwoSidedTable {
        TwoSidedTable {
            // With twice the capacity, a table full of tombstones is rehashed in place and never allocates.
            index: HashTable::with_capacity(config.keys as usize * 2),
            // Objects that are deleted but held take an allocation, too.
            extents: Extents::new(extents, config.keys.saturating_add(config.keys / 8).saturating_add(1024)),
            config,
            moves: Moves::default(),
        }
    }

    /// Notes that all keys may move, if the index is full of tombstones: inserting a new key then rehashes
    /// the index.
    fn note_tidying(&mut self) {
        if self.index.capacity() == self.index.len() {
            self.moves.note_all();
        }
    }

    /// Returns the number of free 64-byte lines of the extents.
    pub fn free_lines(&self) -> u32 {
        self.extents.free_lines()
    }

    /// Returns the number of lines that an object takes.
    pub(crate) fn lines(key_len: usize, value_len: usize) -> usize {
        Extents::lines_taken(object_len(key_len, value_len))
    }

    /// Allocates memory for a value of `key` that arrives in pieces. The current value of the key stays
    /// until the draft is published.
    ///
    /// # Errors
    /// `NoSpace`.
    pub fn draft(&mut self, key: &[u8], value_len: usize) -> Result<Draft, Refusal> {
        let extent = self.extents.allocate(object_len(key.len(), value_len))?;
        self.extents.region.store(extent.offset(), 0);
        self.extents.region.write(extent.offset() + HEADER, key);
        Ok(Draft { extent, key_len: key.len() as u32, value_len: value_len as u32 })
    }

    /// Writes `data` at byte `offset` of the value.
    ///
    /// # Panics
    /// If the data exceeds the value.
    pub fn fill(&mut self, draft: &Draft, offset: usize, data: &[u8]) {
        assert!(offset + data.len() <= draft.value_len as usize, "a draft is filled inside its length");
        self.extents.region.write(draft.value_at() + offset, data);
    }

    /// Stores the draft under `key`, which must be the key that it was made for.
    ///
    /// # Errors
    /// The table is full; the draft is returned.
    pub fn publish(&mut self, key: &[u8], draft: Draft) -> Result<Stored, Draft> {
        let hash = hash_key(self.config.hash_seed, key);
        self.note_tidying();
        let TwoSidedTable { index, extents, config, .. } = self;
        let full = index.len() >= config.keys as usize;
        let Draft { extent, key_len, value_len } = draft;
        let stored = draft.stored();
        match index.entry(hash, |item| is(extents, item, hash, key), |item| item.hash) {
            Entry::Occupied(mut entry) => {
                let old = std::mem::replace(entry.get_mut(), Item { hash, extent, key_len, value_len });
                retire(extents, old.extent);
            }
            Entry::Vacant(_) if full => return Err(draft),
            Entry::Vacant(entry) => {
                entry.insert(Item { hash, extent, key_len, value_len });
            }
        }
        Ok(stored)
    }

    /// Frees the memory of a draft.
    pub fn discard(&mut self, draft: Draft) {
        self.extents.free(draft.extent);
    }
}

/// Returns the length of an object in bytes.
fn object_len(key_len: usize, value_len: usize) -> usize {
    HEADER + key_len + value_len
}

/// Returns true if the item belongs to `key`.
fn is(extents: &Extents, item: &Item, hash: u64, key: &[u8]) -> bool {
    item.hash == hash && item.key_len as usize == key.len() && extents.equal(item.extent, HEADER, key)
}

/// Frees an object, or leaves it to the last release if responses are being sent from it.
fn retire(extents: &mut Extents, extent: Extent) {
    let header = extents.region.load(extent.offset());
    if header == 0 {
        extents.free(extent);
    } else {
        extents.region.store(extent.offset(), header | DEAD);
    }
}

impl Table for TwoSidedTable {
    const DESIGN: Design = Design::TwoSided;

    fn grant(&self) -> TableGrant {
        let nothing = Remote { addr: 0, rkey: Key::new(0) };
        TableGrant { index: nothing, index_len: 0, extents: nothing, hash_seed: self.config.hash_seed }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        let hash = hash_key(self.config.hash_seed, key);
        self.note_tidying();
        let TwoSidedTable { index, extents, config, .. } = self;
        let full = index.len() >= config.keys as usize;
        let needed = object_len(key.len(), value.len());
        match index.entry(hash, |item| is(extents, item, hash, key), |item| item.hash) {
            Entry::Occupied(mut entry) => {
                let item = entry.get_mut();
                let old = object_len(item.key_len as usize, item.value_len as usize);
                if Extents::lines_for(old) != Extents::lines_for(needed)
                    || extents.region.load(item.extent.offset()) != 0
                {
                    let extent = extents.allocate(needed)?;
                    extents.region.store(extent.offset(), 0);
                    extents.region.write(extent.offset() + HEADER, key);
                    retire(extents, item.extent);
                    item.extent = extent;
                }
                item.value_len = value.len() as u32;
                extents.region.write(item.extent.offset() + HEADER + key.len(), value);
            }
            Entry::Vacant(_) if full => return Err(Refusal::TableFull),
            Entry::Vacant(entry) => {
                let extent = extents.allocate(needed)?;
                extents.region.store(extent.offset(), 0);
                extents.region.write(extent.offset() + HEADER, key);
                extents.region.write(extent.offset() + HEADER + key.len(), value);
                let key_len = key.len() as u32;
                let value_len = value.len() as u32;
                entry.insert(Item { hash, extent, key_len, value_len });
            }
        }
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Refusal> {
        let hash = hash_key(self.config.hash_seed, key);
        let extents = &self.extents;
        match self.index.find_entry(hash, |item| is(extents, item, hash, key)) {
            Ok(entry) => {
                let (item, _) = entry.remove();
                retire(&mut self.extents, item.extent);
                Ok(())
            }
            Err(_) => Err(Refusal::Absent),
        }
    }

    fn find(&self, key: &[u8]) -> Result<Stored, Refusal> {
        let hash = hash_key(self.config.hash_seed, key);
        let entry = self.index.find(hash, |item| is(&self.extents, item, hash, key));
        entry.ok_or(Refusal::Absent).map(|item| Stored {
            offset: item.extent.offset() + HEADER + key.len(),
            len: item.value_len as usize,
            hold: Hold(item.extent),
        })
    }

    fn values(&self) -> &Registered {
        self.extents.region.block()
    }

    fn hold(&mut self, hold: Hold) {
        let offset = hold.0.offset();
        self.extents.region.store(offset, self.extents.region.load(offset) + 1);
    }

    fn release(&mut self, hold: Hold) {
        let offset = hold.0.offset();
        let header = self.extents.region.load(offset) - 1;
        self.extents.region.store(offset, header);
        if header == DEAD {
            self.extents.free(hold.0);
        }
    }

    fn positions(&self) -> u64 {
        self.index.num_buckets() as u64
    }

    fn key_at(&self, position: u64, page: &mut Vec<u8>) {
        if let Some(item) = self.index.get_bucket(position as usize) {
            let offset = item.extent.offset() + HEADER;
            push(page, item.key_len as usize, |key| self.extents.region.read(offset, key));
        }
    }

    fn moves(&self) -> &Moves {
        &self.moves
    }

    fn len(&self) -> u64 {
        self.index.len() as u64
    }
}
