//! The hash table that chains read: buckets in memory that the NIC reads, two for each key.
//!
//! As in `MemC3`, a key's other bucket follows from one of them and its tag. So an item can move to free a
//! bucket for another.
//!
//! A bucket is a line of 64 bytes. Its first words have the form of a work request: header, address, length.
//! So one READ turns them into the request that sends the answer
//! (`program/chain/programs/offloads/cache.chain`). The words that the client checks follow. The header is
//! written last and removed first. The digest detects any other torn read.

use super::attributes::Attributes;
use super::lru::NONE;
use crate::kv::hash_key;
use crate::region::{Region, Registered};
use crc_fast::{CrcAlgorithm, Digest};
use remora_nic::wqe::{ID_BITS, WqeOpcode};
use remora_transport::Instant;

/// Bytes of a bucket.
const BUCKET: usize = 64;
/// Bytes that a client checks, after key and value in the chain's answer.
const CHECKED: usize = 32;
/// Bytes of a client's request to the chain.
const ASK: usize = 32;
/// Maximum length of an answer, which the chain's receive buffer holds.
pub const ANSWER: usize = (LONGEST + CHECKED).next_multiple_of(64);
/// Maximum number of items that are moved to free a bucket.
const MOVES: usize = 16;

/// Indices of a bucket's words.
const HEADER: usize = 0;
const ADDRESS: usize = 1;
const LENGTH: usize = 2;
const EXPIRES: usize = 3;
/// Flags in the low half, length of the key in the high half.
const FLAGS: usize = 4;
const UNIQUE: usize = 5;
const DIGEST: usize = 6;
const WORDS: usize = 7;

/// The location of the buckets, from which a client finds those of a key.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Address of the first bucket.
    pub address: u64,
    /// Number of buckets: a power of two.
    pub buckets: u64,
    /// Seed of the key hash.
    pub seed: u64,
}

/// A key's first bucket, and its tag of 48 bits, which is not 0.
#[derive(Copy, Clone)]
struct BucketTag {
    bucket: u64,
    tag: u64,
}

/// Returns the other bucket of an item.
fn other(bucket: u64, tag: u64, buckets: u64) -> u64 {
    (bucket ^ (tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24 | 1)) & (buckets - 1)
}

impl Directory {
    /// Bytes of the encoded directory.
    pub const LEN: usize = 24;

    /// Encodes the directory, little-endian.
    pub fn to_bytes(&self) -> [u8; Directory::LEN] {
        let words = [self.address, self.buckets, self.seed].map(u64::to_le_bytes);
        std::array::from_fn(|index| words[index / 8][index % 8])
    }

    /// Decodes a directory. Returns `None` if it is malformed.
    pub fn from_bytes(bytes: &[u8]) -> Option<Directory> {
        let [address, buckets, seed] = words(bytes)?;
        (bytes.len() == Directory::LEN && u64::is_power_of_two(buckets)).then_some(Directory {
            address,
            buckets,
            seed,
        })
    }

    fn place(&self, key: &[u8]) -> BucketTag {
        let hash = hash_key(self.seed, key);
        BucketTag { bucket: hash & (self.buckets - 1), tag: (hash >> (64 - ID_BITS)).max(1) }
    }

    /// Returns the client's request to the chain: the address of each bucket, and the header to compare
    /// there.
    pub fn ask(&self, key: &[u8]) -> [u8; ASK] {
        let BucketTag { bucket, tag } = self.place(key);
        let address = |bucket: u64| self.address.wrapping_add(bucket * BUCKET as u64);
        let header = header(tag);
        let words = [address(bucket), header, address(other(bucket, tag, self.buckets)), header]
            .map(u64::to_le_bytes);
        std::array::from_fn(|index| words[index / 8][index % 8])
    }
}

/// Returns the header of a bucket: that of a NOP whose work request id is the tag.
fn header(tag: u64) -> u64 {
    u64::from(WqeOpcode::NOP.0) | tag << (64 - ID_BITS)
}

fn words<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let mut chunks = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight")));
    let words: [u64; N] = std::array::from_fn(|_| chunks.next().unwrap_or(0));
    (bytes.len() >= 8 * N).then_some(words)
}

/// An item, as a client of a chain receives it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// The value of the item.
    pub value: &'a [u8],
    /// The flags that were stored with the value.
    pub flags: u32,
    /// The number that `cas` compares.
    pub unique: u64,
}

impl<'a> Item<'a> {
    /// Parses the chain's answer. Returns `None` if the digest or key does not match, or if the item has
    /// expired. The client must then use another protocol.
    pub fn of(answer: &'a [u8], key: &[u8], now: Instant) -> Option<Item<'a>> {
        let (bytes, checked) = answer.split_at_checked(answer.len().checked_sub(CHECKED)?)?;
        let [expires, flags, unique, digest] = words(checked)?;
        let mut summing = Summing::new();
        summing.add(bytes);
        let fits = (flags >> 32) as usize == key.len() && Instant(expires) > now;
        let value = bytes.strip_prefix(key).filter(|_| fits)?;
        (summing.end(flags, unique) == digest).then_some(Item { value, flags: flags as u32, unique })
    }
}

/// Maximum length of a key and a value together.
pub const LONGEST: usize = super::MAX_KEY + super::MAX_VALUE;

/// The computation of an item's digest.
struct Summing(Digest);

impl Summing {
    fn new() -> Summing {
        Summing(Digest::new(CrcAlgorithm::Crc64Nvme))
    }

    fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn end(mut self, flags: u64, unique: u64) -> u64 {
        self.add(&flags.to_le_bytes());
        self.add(&unique.to_le_bytes());
        self.0.finalize()
    }
}

/// The server's view of all buckets.
pub struct Buckets {
    region: Region,
    directory: Directory,
    /// The node of the item in each bucket; `NONE` if the bucket is empty.
    owners: Vec<u32>,
    /// The bucket of each node's item; `NONE` if it has none.
    places: Vec<u32>,
}

impl Buckets {
    /// Returns the bytes of the buckets for `items` items. With two buckets per item, all items fit.
    pub fn memory(items: u32) -> usize {
        (2 * items as usize).next_power_of_two() * BUCKET
    }

    /// Initialises empty buckets in [`memory`](Buckets::memory) for `items` items.
    pub fn new(block: Registered, items: u32, seed: u64) -> Buckets {
        let count = Buckets::memory(items) / BUCKET;
        assert!(block.bytes.len() >= count * BUCKET, "there are two buckets for each item");
        let directory = Directory { address: block.addr, buckets: count as u64, seed };
        let region = Region::new(block);
        Buckets { region, directory, owners: vec![NONE; count], places: vec![NONE; items as usize] }
    }

    /// Returns the directory for clients.
    pub fn directory(&self) -> Directory {
        self.directory
    }

    /// Publishes the item of a node. Key and value are contiguous in `values` from `offset` on.
    pub fn put(
        &mut self,
        node: u32,
        key: &[u8],
        values: &Registered,
        offset: usize,
        len: usize,
        attributes: Attributes,
    ) {
        self.remove(node);
        let mut digest = Summing::new();
        let mut piece = [0; 4096];
        for position in (0..len).step_by(piece.len()) {
            let piece = &mut piece[..(len - position).min(4096)];
            values.read(offset + position, piece);
            digest.add(piece);
        }
        let flags = u64::from(attributes.flags) | (key.len() as u64) << 32;
        let digest = digest.end(flags, attributes.unique);
        let place = self.directory.place(key);
        let address = values.addr + offset as u64;
        let len = len as u64;
        let expires = attributes.expires.0;
        let unique = attributes.unique;
        let bucket = self.vacate(place);
        self.write(bucket, [header(place.tag), address, len, expires, flags, unique, digest]);
        self.own(bucket, node);
    }

    /// Removes the item of a node from the buckets.
    pub fn remove(&mut self, node: u32) {
        let bucket = std::mem::replace(&mut self.places[node as usize], NONE);
        if bucket != NONE {
            self.owners[bucket as usize] = NONE;
            self.store(bucket.into(), HEADER, 0);
        }
    }

    /// Changes the time at which the item of a node expires.
    pub fn expires(&mut self, node: u32, time: Instant) {
        let bucket = self.places[node as usize];
        if bucket != NONE {
            self.store(bucket.into(), EXPIRES, time.0);
        }
    }

    /// Lets all items expire at this time at the latest.
    pub fn end_by(&mut self, time: Instant) {
        for node in 0..self.places.len() as u32 {
            let bucket = self.places[node as usize];
            if bucket != NONE && self.load(bucket.into(), EXPIRES) > time.0 {
                self.expires(node, time);
            }
        }
    }

    /// Frees a bucket for an item by moving other items to their other bucket. If that is impossible, one
    /// item is removed from the buckets.
    fn vacate(&mut self, BucketTag { bucket, tag }: BucketTag) -> u64 {
        let second = other(bucket, tag, self.directory.buckets);
        let free = |buckets: &Buckets, bucket: u64| buckets.owners[bucket as usize] == NONE;
        if let Some(bucket) = [bucket, second].into_iter().find(|bucket| free(self, *bucket)) {
            return bucket;
        }
        let mut path = vec![bucket];
        while path.len() <= MOVES {
            let last = path[path.len() - 1];
            let tag = self.load(last, HEADER) >> (64 - ID_BITS);
            let next = other(last, tag, self.directory.buckets);
            if path.contains(&next) {
                break;
            }
            path.push(next);
            if free(self, next) {
                path.windows(2).rev().for_each(|step| self.shift(step[0], step[1]));
                return bucket;
            }
        }
        let owner = self.owners[bucket as usize];
        self.remove(owner);
        bucket
    }

    /// Moves an item to an empty bucket. The item is in both buckets before it leaves the old one.
    fn shift(&mut self, source: u64, target: u64) {
        let words = std::array::from_fn(|word| self.load(source, word));
        self.write(target, words);
        self.own(target, self.owners[source as usize]);
        self.owners[source as usize] = NONE;
        self.store(source, HEADER, 0);
    }

    fn own(&mut self, bucket: u64, node: u32) {
        self.owners[bucket as usize] = node;
        self.places[node as usize] = bucket as u32;
    }

    /// Writes a bucket, with its header last.
    fn write(&mut self, bucket: u64, words: [u64; WORDS]) {
        for word in [ADDRESS, LENGTH, EXPIRES, FLAGS, UNIQUE, DIGEST] {
            self.store(bucket, word, words[word]);
        }
        self.store(bucket, HEADER, words[HEADER]);
    }

    fn load(&self, bucket: u64, word: usize) -> u64 {
        self.region.load(bucket as usize * BUCKET + word * 8)
    }

    /// Stores a word with release order: earlier stores become visible before it, later ones after it.
    fn store(&mut self, bucket: u64, word: usize, value: u64) {
        self.region.barrier();
        self.region.store(bucket as usize * BUCKET + word * 8, value);
        self.region.barrier();
    }
}
