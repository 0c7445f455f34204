//! The server's table, which is the only writer of its memory.

use super::{HEADER, WAYS};
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
use remora_nic::kernel::Slot;

/// Number of buckets per slot.
const BUCKETS: usize = 3;

/// The size of a table.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Number of slots of three buckets. With up to half of the buckets taken, one GET in sixteen needs a
    /// second slot.
    pub slots: u32,
    /// Seed of the key hash.
    pub hash_seed: u64,
}

impl Config {
    /// Returns the configuration for `keys` keys with half of the buckets taken.
    pub fn for_keys(keys: u32, hash_seed: u64) -> Config {
        Config { slots: (keys / 3).saturating_mul(2).saturating_add(8), hash_seed }
    }

    /// Returns the bytes of the index.
    pub fn index_len(&self) -> usize {
        self.slots as usize * Slot::LEN
    }
}

/// The server's table. The kernel reads `index` and `extents`; only the table writes them.
pub struct StromTable {
    index: Region,
    extents: Extents,
    /// The object of each bucket.
    held: Vec<Option<Object>>,
    config: Config,
    keys: u64,
    moves: Moves,
    search: Vec<Node>,
    /// A buffer in which an object is composed.
    scratch: Vec<u8>,
}

/// The extent of an object, and the length of its key.
#[derive(Copy, Clone)]
struct Object {
    extent: Extent,
    key_len: u32,
}

/// A bucket: its slot, and its index in the slot.
type Bucket = (u32, usize);

/// A search node: a key that could move from its bucket to its later slot.
#[derive(Copy, Clone)]
struct Node {
    bucket: Bucket,
    later: u32,
    /// The node whose key would move to this bucket.
    parent: u16,
}

const ROOT: u16 = u16::MAX;
/// Maximum number of keys that the search visits before a new key is refused. The search has no natural end.
const SEARCH: usize = 512;

impl StromTable {
    /// Returns an empty table in `index` ([`Config::index_len`] bytes), with its objects in `extents`.
    ///
    /// # Panics
    /// If the index block is too small, there are no slots, or the extents begin at address 0.
    pub fn new(config: Config, index: Registered, extents: Registered) -> StromTable {
        assert!(
            config.slots > 0 && index.bytes.len() >= config.index_len(),
            "the table's block is too small"
        );
        assert!(extents.addr != 0, "address 0 means an empty bucket");
        let buckets = config.slots as usize * BUCKETS;
        let mut table = StromTable {
            index: Region::new(index),
            extents: Extents::new(extents, u32::try_from(buckets).unwrap_or(u32::MAX)),
            held: vec![None; buckets],
            config,
            keys: 0,
            moves: Moves::default(),
            search: Vec::with_capacity(SEARCH),
            scratch: Vec::with_capacity(2 << 20),
        };
        for slot in 0..config.slots as usize {
            table.index.write(slot * Slot::LEN, &[0; Slot::LEN]);
        }
        table
    }

    /// Returns the number of free 64-byte lines of the extents.
    pub fn free_lines(&self) -> u32 {
        self.extents.free_lines()
    }

    fn load(&self, slot: u32) -> Slot {
        let mut bytes = [0; Slot::LEN];
        self.index.read(slot as usize * Slot::LEN, &mut bytes);
        Slot::parse(&bytes).unwrap_or_default()
    }

    fn held(&self, (slot, bucket): Bucket) -> Option<Object> {
        self.held[slot as usize * BUCKETS + bucket]
    }

    fn hold(&mut self, (slot, bucket): Bucket, object: Option<Object>) -> Option<Object> {
        std::mem::replace(&mut self.held[slot as usize * BUCKETS + bucket], object)
    }

    fn ways(&self, hash: u64) -> [u32; WAYS] {
        core::array::from_fn(|way| choice(hash, way, self.config.slots.into()) as u32)
    }

    /// Returns the bucket that holds a hash.
    fn locate(&self, hash: u64) -> Option<Bucket> {
        self.ways(hash).into_iter().find_map(|slot| {
            let stored = self.load(slot);
            StromTable::buckets(slot)
                .find(|&bucket| self.held(bucket).is_some() && stored.keys[bucket.1] == hash)
        })
    }

    fn buckets(slot: u32) -> impl Iterator<Item = Bucket> {
        (0..BUCKETS).map(move |bucket| (slot, bucket))
    }

    fn vacant(&self, slot: u32) -> Option<Bucket> {
        StromTable::buckets(slot).find(|bucket| self.held(*bucket).is_none())
    }

    /// Returns a bucket for a hash that has none: a vacant one, or one whose key can move to its later slot,
    /// after which further keys may have to move. The number of moves is minimal.
    fn make_space(&mut self, hash: u64) -> Option<Bucket> {
        let ways = self.ways(hash);
        if let Some(bucket) = ways.into_iter().find_map(|slot| self.vacant(slot)) {
            return Some(bucket);
        }
        self.search.clear();
        ways.into_iter().for_each(|slot| self.extend(slot, ROOT));
        for node in 0..SEARCH {
            let Node { later, .. } = *self.search.get(node)?;
            if let Some(free) = self.vacant(later) {
                return Some(self.shift(node as u16, free));
            }
            self.extend(later, node as u16);
        }
        None
    }

    /// Adds the movable keys of a slot to the search: those whose first slot it is.
    fn extend(&mut self, slot: u32, parent: u16) {
        let stored = self.load(slot);
        for bucket in StromTable::buckets(slot) {
            let [first, later] = self.ways(stored.keys[bucket.1]);
            if first == slot && later != slot && self.search.len() < SEARCH {
                self.search.push(Node { bucket, later, parent });
            }
        }
    }

    /// Moves the keys on the path that ends in `node`, the last one first. So a key is in its later slot
    /// before it leaves the first. Returns the bucket that becomes free.
    fn shift(&mut self, node: u16, free: Bucket) -> Bucket {
        let mut node = node;
        let mut free = free;
        while node != ROOT {
            let Node { bucket: source, parent, .. } = self.search[usize::from(node)];
            let stored = self.load(source.0);
            self.publish(free, stored.keys[source.1], stored.values[source.1], stored.lens[source.1]);
            self.empty(source);
            let object = self.hold(source, None);
            self.hold(free, object);
            self.moves.note(u64::from(free.0) * BUCKETS as u64 + free.1 as u64);
            (node, free) = (parent, source);
        }
        free
    }

    /// Fills a bucket. The address is stored last, because it makes the key visible. A key that is in the
    /// bucket already stays visible throughout; a length that does not belong to the object fails the
    /// reader's check.
    fn publish(&mut self, (slot, bucket): Bucket, hash: u64, address: u64, len: u32) {
        let mut content = self.load(slot);
        (content.keys[bucket], content.lens[bucket]) = (hash, len);
        self.store(slot, &content);
        content.values[bucket] = address;
        self.store(slot, &content);
    }

    fn empty(&mut self, (slot, bucket): Bucket) {
        let mut content = self.load(slot);
        content.values[bucket] = 0;
        self.store(slot, &content);
    }

    fn store(&mut self, slot: u32, content: &Slot) {
        let bytes = content.emit();
        self.index.barrier();
        for offset in (0..Slot::LEN).step_by(8) {
            self.index.store(slot as usize * Slot::LEN + offset, u64_at(&bytes, offset));
        }
        self.index.barrier();
    }

    /// Returns true if the object in the bucket belongs to `key`, and not to another key with the same hash.
    fn is_of(&self, bucket: Bucket, key: &[u8]) -> bool {
        self.held(bucket).is_some_and(|object| {
            object.key_len as usize == key.len() && self.extents.equal(object.extent, HEADER, key)
        })
    }
}

impl Table for StromTable {
    const DESIGN: Design = Design::Strom;

    fn grant(&self) -> TableGrant {
        TableGrant {
            index: self.index.block().remote(),
            index_len: self.config.slots.into(),
            extents: self.extents.region.block().remote(),
            hash_seed: self.config.hash_seed,
        }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        let hash = hash_key(self.config.hash_seed, key);
        let existing = self.locate(hash);
        if existing.is_some_and(|bucket| !self.is_of(bucket, key)) {
            return Err(Refusal::TableFull);
        }
        let extent = self.extents.allocate(HEADER + key.len() + value.len())?;
        let Some(bucket) = existing.or_else(|| self.make_space(hash)) else {
            self.extents.free(extent);
            return Err(Refusal::TableFull);
        };
        self.scratch.clear();
        self.scratch.extend_from_slice(&[0; HEADER]);
        self.scratch.extend_from_slice(key);
        self.scratch.extend_from_slice(value);
        let crc = crc64(&self.scratch[HEADER..]);
        self.scratch[..HEADER].copy_from_slice(&crc.to_le_bytes());
        self.extents.region.write(extent.offset(), &self.scratch);
        let address = self.extents.region.block().addr + extent.offset() as u64;
        self.publish(bucket, hash, address, self.scratch.len() as u32);
        match self.hold(bucket, Some(Object { extent, key_len: key.len() as u32 })) {
            // Readers of the old object detect by its check value that its lines were reused.
            Some(old) => self.extents.free(old.extent),
            None => self.keys += 1,
        }
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Refusal> {
        let hash = hash_key(self.config.hash_seed, key);
        let bucket = self.locate(hash).filter(|bucket| self.is_of(*bucket, key)).ok_or(Refusal::Absent)?;
        self.empty(bucket);
        if let Some(old) = self.hold(bucket, None) {
            self.extents.free(old.extent);
        }
        self.keys -= 1;
        Ok(())
    }

    fn values(&self) -> &Registered {
        self.extents.region.block()
    }

    fn positions(&self) -> u64 {
        self.held.len() as u64
    }

    fn key_at(&self, position: u64, page: &mut Vec<u8>) {
        if let Some(Object { extent, key_len }) = self.held[position as usize] {
            push(page, key_len as usize, |key| self.extents.region.read(extent.offset() + HEADER, key));
        }
    }

    fn moves(&self) -> &Moves {
        &self.moves
    }

    fn len(&self) -> u64 {
        self.keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_memory::{Bytes, Key};

    fn block(number: u32, len: usize) -> Registered {
        let bytes = Bytes::heap(len).unwrap();
        Registered { bytes, addr: u64::from(number) << 32, key: Key::new(number) }
    }

    fn table(slots: u32, extents: usize) -> StromTable {
        let config = Config { slots, hash_seed: 3 };
        StromTable::new(config, block(1, config.index_len()), block(2, extents))
    }

    /// Returns what the kernel would find for a key.
    fn look(table: &StromTable, key: &[u8]) -> Option<Vec<u8>> {
        let hash = hash_key(table.config.hash_seed, key);
        let (addr, len) = table.ways(hash).into_iter().find_map(|slot| table.load(slot).find(hash))?;
        let mut object = vec![0; len as usize];
        table.extents.region.read((addr - (2 << 32)) as usize, &mut object);
        assert_eq!(crc64(&object[HEADER..]), u64_at(&object, 0));
        Some(object[HEADER..].strip_prefix(key).expect("the key's own object").to_vec())
    }

    #[test]
    fn half_full_every_key_is_found_and_all_room_comes_back() {
        let config = Config::for_keys(3000, 0);
        let mut table = table(config.slots, 1 << 20);
        let all = table.free_lines();
        for round in 0..3u8 {
            for number in 0..3000u32 {
                let len = (number as usize * 7 + usize::from(round) * 13) % 100;
                table.put(&number.to_le_bytes(), &vec![round; len]).unwrap();
            }
        }
        assert_eq!(table.len(), 3000);
        for number in 0..3000u32 {
            let value = look(&table, &number.to_le_bytes()).unwrap();
            assert_eq!(value, vec![2; (number as usize * 7 + 26) % 100]);
        }
        assert_eq!(look(&table, b"none"), None);
        assert_eq!(table.delete(b"none"), Err(Refusal::Absent));
        (0..3000u32).for_each(|number| table.delete(&number.to_le_bytes()).unwrap());
        assert_eq!((table.len(), table.free_lines()), (0, all));
        assert_eq!(look(&table, &7u32.to_le_bytes()), None);
    }

    #[test]
    fn what_has_no_room_changes_nothing() {
        let mut full = table(1, 1 << 16);
        let stored = (0..10u8).filter(|number| full.put(&[*number], b"value").is_ok()).count();
        assert_eq!((stored, full.put(b"one more", b"")), (BUCKETS, Err(Refusal::TableFull)));
        let mut small = table(8, 64 * LINES);
        small.put(b"key", b"short").unwrap();
        assert_eq!(small.put(b"key", &[0; 64 * LINES]), Err(Refusal::NoSpace));
        assert_eq!(look(&small, b"key"), Some(b"short".to_vec()));
    }

    const LINES: usize = 4;

    #[test]
    fn of_two_keys_with_one_hash_the_second_is_refused() {
        let mut table = table(8, 1 << 12);
        table.put(b"first", b"value").unwrap();
        let first = hash_key(3, b"first");
        let second = hash_key(3, b"second");
        // Simulates two keys with the same hash: the second key's slot contains the first key's object under
        // the second hash.
        let bucket = table.locate(first).unwrap();
        let target = (table.ways(second)[0], 0);
        let object = table.load(bucket.0);
        table.publish(target, second, object.values[bucket.1], object.lens[bucket.1]);
        let extent = table.hold(bucket, None);
        table.hold(target, extent);
        assert_eq!(table.put(b"second", b"other"), Err(Refusal::TableFull));
        assert_eq!(table.delete(b"second"), Err(Refusal::Absent));
    }
}
