//! The cache: what each command does to the items.

use super::buckets::Directory;
use super::command::{Verb, expiry, unsigned};
use super::items::{Attributes, Items, Name};
use super::{Config, Counters, MAX_KEY, MAX_VALUE, MIN_MEMORY};
use crate::kv::two_sided::Draft;
use crate::kv::{Registered, Stored};
use transport::Instant;

/// The items of all sessions.
///
/// # Example
/// ```
/// use memory::{Bytes, Key};
/// use remora_store::cache::{Cache, Config, MIN_MEMORY, Session};
/// use transport::Instant;
///
/// let memory = remora_store::Registered { bytes: Bytes::heap(MIN_MEMORY)?, addr: 0, key: Key::new(0) };
/// let config = Config { items: 1000, hash_seed: 1, version: "0.1.0", pid: 1, connections: 1 };
/// let mut cache = Cache::new(config, memory, Instant(0));
/// let (mut session, mut out) = (Session::new(&mut cache), Vec::new());
/// session.run(&mut cache, Instant(0), b"set colour 7 0 4\r\nblue\r\nget colour\r\n", &mut out);
/// assert_eq!(out, b"STORED\r\nVALUE colour 7 4\r\nblue\r\nEND\r\n");
/// # Ok::<(), memory::Error>(())
/// ```
pub struct Cache {
    pub(super) items: Items,
    pub(super) config: Config,
    pub(super) counters: Counters,
    pub(super) started: Instant,
    /// Sessions open.
    pub(super) sessions: u64,
    /// The number of the last change.
    unique: u64,
    /// When all that is there then dies.
    flush: Instant,
}

/// What a storing command says of its item.
#[derive(Copy, Clone)]
pub struct Store {
    pub verb: Verb,
    pub flags: u32,
    pub expires: i64,
}

/// What became of a value.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    Stored,
    NotStored,
    Exists,
    NotFound,
}

/// Why there is no room for a value.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    TooLarge,
    OutOfMemory,
}

/// Why an item was not counted up or down.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Uncounted {
    NotFound,
    NotANumber,
    OutOfMemory,
}

/// In so many bytes of a value a number has ended, if it is one.
const NUMBER: usize = 64;
/// Longest value that may be one, as for memcached.
const MAX_NUMBER: usize = MAX_VALUE / 2;
/// Digits of the largest number.
const DIGITS: usize = 20;

impl Cache {
    /// An empty cache whose values lie in `memory`; `now` counts from 1970 here and everywhere, because clients name points
    /// in time that way.
    ///
    /// # Panics
    /// When `memory` is shorter than [`MIN_MEMORY`], or there may be no item.
    pub fn new(config: Config, memory: Registered, now: Instant) -> Cache {
        assert!(memory.bytes.len() >= MIN_MEMORY, "the longest value must fit");
        assert!(config.items > 0, "a cache holds items");
        Cache {
            items: Items::new(&config, memory),
            config,
            counters: Counters::default(),
            started: now,
            sessions: 0,
            unique: 0,
            flush: Instant::NEVER,
        }
    }

    /// What is stored from now on is found by chains, too: for them it stands in `buckets`, for which
    /// [`Buckets::memory`](super::Buckets::memory) says how many bytes there must be.
    #[must_use]
    pub fn shown_in(mut self, buckets: Registered) -> Cache {
        self.items.show(buckets, self.config.hash_seed);
        self
    }

    /// How clients of chains find what is [shown](Cache::shown_in) to them.
    pub fn directory(&self) -> Option<Directory> {
        self.items.directory()
    }

    /// What was counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Items in it, dead ones that were not found yet among them.
    pub fn items(&self) -> u64 {
        self.items.len()
    }

    /// A client was turned away, because there were too many.
    pub fn reject(&mut self) {
        self.counters.rejected_connections += 1;
    }

    /// A delayed `flush_all` happens when its time has come.
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

    fn next_unique(&mut self) -> u64 {
        self.unique += 1;
        self.unique
    }

    /// Looks an item up for a retrieval, which also gives it a new expiry if it says so.
    pub(super) fn get(
        &mut self,
        key: &[u8],
        touch: Option<i64>,
        now: Instant,
    ) -> Option<(Stored, Attributes)> {
        let found = self.items.find(key, now);
        let hit = u64::from(found.is_some());
        self.counters.cmd_get += 1;
        self.counters.get_hits += hit;
        self.counters.get_misses += 1 - hit;
        if touch.is_some() {
            self.counters.cmd_touch += 1;
            self.counters.touch_hits += hit;
            self.counters.touch_misses += 1 - hit;
        }
        let name = found?;
        self.items.touch(name);
        if let Some(seconds) = touch {
            self.items.set_expiry(name, expiry(seconds, now));
        }
        Some((self.items.stored(name), self.items.attributes(name)))
    }

    /// Room for a value that is to come. If there is none, what a `set` would have overwritten goes: it is out of date.
    pub(super) fn begin(&mut self, verb: Verb, key: &[u8], len: u64, now: Instant) -> Result<Draft, Refused> {
        let refused = if len > MAX_VALUE as u64 {
            self.counters.store_too_large += 1;
            Refused::TooLarge
        } else {
            match self.items.draft(key, len as usize, now) {
                Ok(draft) => return Ok(draft),
                Err(_) => {
                    self.counters.store_no_memory += 1;
                    Refused::OutOfMemory
                }
            }
        };
        if let (Verb::Set, Some(name)) = (verb, self.items.find(key, now)) {
            self.items.remove(name);
        }
        Err(refused)
    }

    /// The value is whole.
    pub(super) fn finish(&mut self, store: Store, key: &[u8], draft: Draft, now: Instant) -> Ended {
        self.counters.cmd_set += 1;
        let found = self.items.find(key, now);
        let ended = match (store.verb, found) {
            (Verb::Set, _) | (Verb::Add, None) | (Verb::Replace, Some(_)) => Ended::Stored,
            (Verb::Append | Verb::Prepend, Some(name)) => {
                return self.join(store.verb, key, name, draft, now);
            }
            (Verb::Cas(unique), Some(name)) if self.items.attributes(name).unique == unique => {
                self.counters.cas_hits += 1;
                Ended::Stored
            }
            (Verb::Cas(_), Some(_)) => {
                self.counters.cas_badval += 1;
                Ended::Exists
            }
            (Verb::Cas(_), None) => {
                self.counters.cas_misses += 1;
                Ended::NotFound
            }
            (Verb::Add, Some(name)) => {
                // Who asks whether it is there uses it.
                self.items.touch(name);
                Ended::NotStored
            }
            (Verb::Replace | Verb::Append | Verb::Prepend, None) => Ended::NotStored,
        };
        if ended == Ended::Stored {
            let expires = expiry(store.expires, now);
            let attributes = Attributes { flags: store.flags, expires, unique: self.next_unique() };
            self.publish(key, draft, attributes, now);
        } else {
            self.items.discard(draft);
        }
        ended
    }

    fn publish(&mut self, key: &[u8], draft: Draft, attributes: Attributes, now: Instant) {
        self.counters.total_items += 1;
        self.items.publish(key, draft, attributes, now);
    }

    /// Stores what is there and the new piece in one; its flags and its expiry stay.
    fn join(&mut self, verb: Verb, key: &[u8], name: Name, piece: Draft, now: Instant) -> Ended {
        // Used just now: others go for it first.
        self.items.touch(name);
        let (old, new) = (self.items.stored(name), piece.stored());
        let attributes = Attributes { unique: self.next_unique(), ..self.items.attributes(name) };
        let len = old.len + new.len;
        let joined = (len <= MAX_VALUE).then(|| self.items.draft(key, len, now).ok()).flatten();
        let ended = match joined {
            // The item itself may have had to go for it: then there is nothing to add to.
            Some(joined) if self.items.find(key, now).is_none() => {
                self.items.discard(joined);
                Ended::NotStored
            }
            Some(joined) => {
                let (first, second) = if verb == Verb::Append { (old, new) } else { (new, old) };
                self.items.fill_from(&joined, 0, first);
                self.items.fill_from(&joined, first.len, second);
                self.publish(key, joined, attributes, now);
                Ended::Stored
            }
            None => Ended::NotStored,
        };
        self.items.discard(piece);
        ended
    }

    pub(super) fn discard(&mut self, draft: Draft) {
        self.items.discard(draft);
    }

    pub(super) fn delete(&mut self, key: &[u8], now: Instant) -> bool {
        let found = self.items.find(key, now);
        match found {
            Some(name) => {
                self.counters.delete_hits += 1;
                self.items.remove(name);
            }
            None => self.counters.delete_misses += 1,
        }
        found.is_some()
    }

    pub(super) fn touch(&mut self, key: &[u8], seconds: i64, now: Instant) -> bool {
        let found = self.items.find(key, now);
        self.counters.cmd_touch += 1;
        match found {
            Some(name) => {
                self.counters.touch_hits += 1;
                self.items.touch(name);
                self.items.set_expiry(name, expiry(seconds, now));
            }
            None => self.counters.touch_misses += 1,
        }
        found.is_some()
    }

    /// Counts up, around the end of 64 bits, or down to 0. The value keeps its length if the new number is shorter: spaces
    /// follow, as memcached has it.
    pub(super) fn count(&mut self, key: &[u8], delta: u64, up: bool, now: Instant) -> Result<u64, Uncounted> {
        let found = self.items.find(key, now);
        let hit = u64::from(found.is_some());
        if up {
            self.counters.incr_hits += hit;
            self.counters.incr_misses += 1 - hit;
        } else {
            self.counters.decr_hits += hit;
            self.counters.decr_misses += 1 - hit;
        }
        let name = found.ok_or(Uncounted::NotFound)?;
        self.items.touch(name);
        let stored = self.items.stored(name);
        let mut text = [b' '; NUMBER + DIGITS];
        let head = &mut text[..stored.len.min(NUMBER)];
        self.items.read(stored.offset, head);
        let number = number(head, stored.len).ok_or(Uncounted::NotANumber)?;
        let number = if up { number.wrapping_add(delta) } else { number.saturating_sub(delta) };
        let attributes = Attributes { unique: self.next_unique(), ..self.items.attributes(name) };
        let len = write(number, &mut text).max(stored.len);
        let draft = self.items.draft(key, len, now).map_err(|_| Uncounted::OutOfMemory)?;
        self.items.fill(&draft, 0, &text[..len.min(text.len())]);
        for at in (text.len()..len).step_by(SPACES.len()) {
            self.items.fill(&draft, at, &SPACES[..(len - at).min(SPACES.len())]);
        }
        self.publish(key, draft, attributes, now);
        Ok(number)
    }
}

const SPACES: [u8; 256] = [b' '; 256];

/// The number that a value of `len` bytes begins with, of which this is the head: space may be around it.
fn number(head: &[u8], len: usize) -> Option<u64> {
    let word = head.trim_ascii_start();
    let end = word.iter().position(u8::is_ascii_whitespace);
    let ends = end.is_some() || head.len() == len;
    (ends && len <= MAX_NUMBER).then(|| unsigned(&word[..end.unwrap_or(word.len())])).flatten()
}

/// Writes a number and then spaces; its digits.
fn write(number: u64, text: &mut [u8]) -> usize {
    text.fill(b' ');
    let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
    let mut rest = number;
    for place in text[..digits].iter_mut().rev() {
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    digits
}

const _: () = assert!(MAX_KEY <= u8::MAX as usize, "the nodes keep a key's length in a byte");
