//! The cache, and the effect of each command on its items.

use super::arrivals::{Arrival, Arrivals};
use super::attributes::{Attributes, Marks};
use super::buckets::Directory;
use super::classes;
use super::command::{Verb, expiry};
use super::items::{Items, Missing, Name};
use super::{Config, Counters, MAX_KEY, MAX_VALUE, MIN_MEMORY};
use crate::kv::two_sided::Draft;
use crate::kv::{Registered, Stored};
use remora_transport::Instant;

/// The items of all sessions.
///
/// # Example
/// ```
/// use remora_memory::{Bytes, Key};
/// use remora_store::cache::{Cache, Config, MIN_MEMORY, Session};
/// use remora_transport::Instant;
///
/// let memory = remora_store::Registered { bytes: Bytes::heap(MIN_MEMORY)?, addr: 0, key: Key::new(0) };
/// let config = Config {
///     items: 1000,
///     hash_seed: 1,
///     version: "1.6.18",
///     remora: "0.1.0",
///     pid: 1,
///     connections: 1,
///     idle_timeout: 0,
///     shutdown: false,
/// };
/// let mut cache = Cache::new(config, memory, Instant(0));
/// let (mut session, mut out) = (Session::new(&mut cache), Vec::new());
/// session.run(&mut cache, Instant(0), b"set colour 7 0 4\r\nblue\r\nget colour\r\n", &mut out);
/// assert_eq!(out, b"STORED\r\nVALUE colour 7 4\r\nblue\r\nEND\r\n");
/// # Ok::<(), remora_memory::Error>(())
/// ```
pub struct Cache {
    pub(super) items: Items,
    /// Values that are being received.
    pub(super) arrivals: Arrivals,
    /// True if `lru_crawler` is enabled.
    pub(super) crawls: bool,
    /// Number of times that the crawler was started.
    pub(super) crawls_started: u64,
    /// True if a client has requested the end of the server.
    pub(super) ending: bool,
    pub(super) config: Config,
    pub(super) counters: Counters,
    pub(super) started: Instant,
    /// Number of open sessions.
    pub(super) sessions: u64,
    /// The number of the last change.
    unique: u64,
    /// Time of a delayed `flush_all`, when all items expire.
    flush: Instant,
}

/// The parameters of a storing command.
#[derive(Copy, Clone)]
pub(crate) struct Store {
    pub verb: Verb,
    pub flags: u32,
    pub expires: i64,
    /// The number that an item must have for `append` and `prepend`.
    pub unique: Option<u64>,
    /// True if an item with a larger number than that of [`Verb::Cas`] is overwritten, with the new item
    /// marked as stale.
    pub stale: bool,
    /// True if the key was given in base64.
    pub binary: bool,
}

/// The result of storing a value.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// The value was stored, and its item has this number.
    Stored(u64),
    NotStored,
    Exists,
    NotFound,
    OutOfMemory,
}

/// A complete value.
#[derive(Copy, Clone)]
pub(crate) enum Value<'a> {
    /// The value is in the bytes that a client has just sent.
    Bytes(&'a [u8]),
    /// The value is stored in pieces, and has this length.
    Arrived(&'a Arrival, usize),
}

impl Value<'_> {
    fn len(self) -> usize {
        match self {
            Value::Bytes(bytes) => bytes.len(),
            Value::Arrived(_, len) => len,
        }
    }
}

/// Values that are being received get one part in `SHARE` of the memory for keys and values, in addition to
/// it.
const SHARE: usize = 8;
/// Minimum memory for values that are being received, in bytes.
const LEAST_SHARE: usize = 2 * MAX_VALUE;
impl Cache {
    /// Returns an empty cache whose values are stored in `memory`. `now` counts from 1970 here and in all
    /// calls, because clients specify times in that way.
    ///
    /// # Panics
    /// If `memory` is shorter than [`MIN_MEMORY`], or if the maximum number of items is 0.
    pub fn new(config: Config, memory: Registered, now: Instant) -> Cache {
        assert!(memory.bytes.len() >= MIN_MEMORY, "the longest value must fit");
        assert!(config.items > 0, "a cache holds items");
        Cache {
            arrivals: Arrivals::new((memory.bytes.len() / SHARE).max(LEAST_SHARE)),
            crawls: true,
            crawls_started: 0,
            ending: false,
            items: Items::new(&config, memory, now),
            config,
            counters: Counters::default(),
            started: now,
            sessions: 0,
            unique: 0,
            flush: Instant::NEVER,
        }
    }

    /// Publishes items that are stored from now on in `buckets`, where chains find them.
    /// [`Buckets::memory`](super::Buckets::memory) returns the required number of bytes.
    #[must_use]
    pub fn shown_in(mut self, buckets: Registered) -> Cache {
        self.items.show(buckets, self.config.hash_seed);
        self
    }

    /// Returns the directory of [published](Cache::shown_in) items for clients of chains, or `None` if there
    /// are no buckets.
    pub fn directory(&self) -> Option<Directory> {
        self.items.directory()
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the number of items, including dead ones that were not detected yet.
    pub fn items(&self) -> u64 {
        self.items.len()
    }

    /// Returns true if a client has requested the end of the server, and that is
    /// [allowed](Config::shutdown).
    pub fn is_ending(&self) -> bool {
        self.ending
    }

    /// Counts a client whose silent connection was closed.
    pub fn kick(&mut self) {
        self.counters.idle_kicks += 1;
    }

    /// Counts a client that was rejected because there were too many.
    pub fn reject(&mut self) {
        self.counters.rejected_connections += 1;
    }

    /// Executes a delayed `flush_all` whose time has come.
    pub(super) fn tick(&mut self, now: Instant) {
        if self.flush <= now {
            self.flush = Instant::NEVER;
            self.items.flush(self.unique + 1);
        }
    }

    pub(super) fn flush(&mut self, delay: i64, now: Instant) {
        self.counters.cmd_flush += 1;
        self.flush = if delay > 0 { expiry(delay, now) } else { now };
        self.items.end_by(self.flush);
        self.tick(now);
    }

    pub(super) fn next_unique(&mut self) -> u64 {
        self.unique += 1;
        self.unique
    }

    /// Looks up an item for a retrieval; `touch` is true if the retrieval sets a new expiry.
    pub(super) fn retrieve(&mut self, key: &[u8], touch: bool, now: Instant) -> Option<Name> {
        let result = self.items.look_up(key, now);
        let hit = u64::from(result.is_ok());
        self.counters.cmd_get += 1;
        self.counters.get_hits += hit;
        self.counters.get_misses += 1 - hit;
        match result {
            Err(Missing::Expired) => self.counters.get_expired += 1,
            Err(Missing::Flushed) => self.counters.get_flushed += 1,
            _ => {}
        }
        if touch {
            self.counters.cmd_touch += 1;
            self.counters.touch_hits += hit;
            self.counters.touch_misses += 1 - hit;
        }
        let name = result.ok()?;
        let counts = self.items.counts(name);
        counts.get_hits += 1;
        counts.touch_hits += u64::from(touch);
        Some(name)
    }

    /// Looks up an item for `get` and its variants, some of which set a new expiry.
    pub(super) fn get(
        &mut self,
        key: &[u8],
        touch: Option<i64>,
        now: Instant,
    ) -> Option<(Stored, Attributes)> {
        let name = self.retrieve(key, touch.is_some(), now)?;
        self.items.fetch(name, now);
        if let Some(seconds) = touch {
            self.items.set_expiry(name, expiry(seconds, now));
        }
        Some((self.items.stored(name), self.items.attributes(name)))
    }

    /// Counts a value that is too long to be stored. The item that a `set` would have overwritten is
    /// removed, because it is out of date.
    pub(super) fn too_large(&mut self, verb: Verb, key: &[u8], now: Instant) {
        self.counters.store_too_large += 1;
        self.overwritten(verb, key, now);
    }

    /// Counts a value for which there was no memory.
    pub(super) fn out_of_memory(&mut self, verb: Verb, key: &[u8], len: usize, now: Instant) {
        self.counters.store_no_memory += 1;
        self.items.out_of_memory(classes::size(key.len(), 0, len));
        self.overwritten(verb, key, now);
    }

    fn overwritten(&mut self, verb: Verb, key: &[u8], now: Instant) {
        if let (Verb::Set, Some(name)) = (verb, self.items.find(key, now)) {
            self.items.remove(name);
        }
    }

    /// Stores a complete value.
    pub(super) fn finish(&mut self, store: Store, key: &[u8], value: Value<'_>, now: Instant) -> Ended {
        self.counters.cmd_set += 1;
        let item = self.items.find(key, now);
        let old = item.map(|name| self.items.attributes(name));
        let mut expires = expiry(store.expires, now);
        let mut marks = Marks { binary: store.binary, ..Marks::default() };
        match (store.verb, item.zip(old)) {
            (Verb::Set, _) | (Verb::Add, None) | (Verb::Replace, Some(_)) => {}
            (Verb::Append | Verb::Prepend, Some((_, old)))
                if store.unique.is_some_and(|unique| unique != 0 && unique != old.unique) =>
            {
                return Ended::Exists;
            }
            (Verb::Append | Verb::Prepend, Some((name, _))) => {
                return self.join(store.verb, key, name, value, now);
            }
            (Verb::Cas(unique), Some((name, old))) if old.unique == unique => {
                self.counters.cas_hits += 1;
                self.items.counts(name).cas_hits += 1;
            }
            (Verb::Cas(unique), Some((_, old))) if store.stale && (1..old.unique).contains(&unique) => {
                expires = old.expires;
                (marks.stale, marks.won) = (true, old.marks.won);
            }
            (Verb::Cas(_), Some((name, _))) => {
                self.counters.cas_badval += 1;
                self.items.counts(name).cas_badval += 1;
                return Ended::Exists;
            }
            (Verb::Cas(_), None) => {
                self.counters.cas_misses += 1;
                return Ended::NotFound;
            }
            (Verb::Add, Some((name, _))) => {
                // A command that tests whether an item exists counts as a use of it.
                self.items.touch(name, now);
                return Ended::NotStored;
            }
            (Verb::Replace | Verb::Append | Verb::Prepend, None) => return Ended::NotStored,
        }
        let Ok(draft) = self.items.draft(key, value.len(), now) else {
            self.out_of_memory(store.verb, key, value.len(), now);
            return Ended::OutOfMemory;
        };
        self.fill(&draft, 0, value);
        let unique = self.next_unique();
        self.publish(key, draft, Attributes { flags: store.flags, expires, unique, marks }, now);
        Ended::Stored(unique)
    }

    /// Writes a value to the memory allocated for it.
    fn fill(&mut self, draft: &Draft, mut offset: usize, value: Value<'_>) {
        match value {
            Value::Bytes(bytes) => self.items.fill(draft, offset, bytes),
            Value::Arrived(arrival, _) => {
                for piece in self.arrivals.pieces(arrival) {
                    self.items.fill(draft, offset, piece);
                    offset += piece.len();
                }
            }
        }
    }

    pub(super) fn publish(&mut self, key: &[u8], draft: Draft, attributes: Attributes, now: Instant) -> Name {
        self.counters.total_items += 1;
        let name = self.items.publish(key, draft, attributes, now);
        self.items.counts(name).cmd_set += 1;
        name
    }

    /// Stores the old value and the new piece as one value; flags and expiry stay.
    fn join(&mut self, verb: Verb, key: &[u8], name: Name, piece: Value<'_>, now: Instant) -> Ended {
        // The item becomes the most recently used, so others are evicted first.
        self.items.touch(name, now);
        let old = self.items.stored(name);
        let unique = self.next_unique();
        let attributes = Attributes { unique, marks: Marks::default(), ..self.items.attributes(name) };
        let len = old.len + piece.len();
        let joined = (len <= MAX_VALUE).then(|| self.items.draft(key, len, now).ok()).flatten();
        match joined {
            // The item itself may have been evicted for the new value; then there is nothing to add to.
            Some(joined) if self.items.find(key, now).is_none() => {
                self.items.discard(joined);
                Ended::NotStored
            }
            Some(joined) => {
                let behind = if verb == Verb::Append { (0, old.len) } else { (piece.len(), 0) };
                self.items.fill_from(&joined, behind.0, old);
                self.fill(&joined, behind.1, piece);
                self.publish(key, joined, attributes, now);
                Ended::Stored(unique)
            }
            None => Ended::NotStored,
        }
    }

    pub(super) fn delete(&mut self, key: &[u8], now: Instant) -> bool {
        let item = self.items.find(key, now);
        match item {
            Some(name) => {
                self.counters.delete_hits += 1;
                self.items.counts(name).delete_hits += 1;
                self.items.remove(name);
            }
            None => self.counters.delete_misses += 1,
        }
        item.is_some()
    }

    pub(super) fn touch(&mut self, key: &[u8], seconds: i64, now: Instant) -> bool {
        let item = self.items.find(key, now);
        self.counters.cmd_touch += 1;
        match item {
            Some(name) => {
                self.counters.touch_hits += 1;
                self.items.counts(name).touch_hits += 1;
                self.items.fetch(name, now);
                self.items.set_expiry(name, expiry(seconds, now));
            }
            None => self.counters.touch_misses += 1,
        }
        item.is_some()
    }
}

const _: () = assert!(MAX_KEY <= u8::MAX as usize, "the nodes keep a key's length in a byte");
