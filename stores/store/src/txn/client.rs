//! The PRISM-TX client: a window of transactions over the queue pairs of several shards.

use remora_nic::WorkCompletion;
use remora_transport::Status;

use super::client_config::ClientConfig;
use super::event::{Event, Refused};
use super::grant::Grant;
use super::machine::Machine;
use super::timestamp::{CLIENTS, LAST_TICK, Timestamp};
use super::transaction::{Change, Entry, EntryId, Hold, Known, Outcome, Phase, Step, Transaction, Tx};
use super::window::{self, Window};
use super::work::{Work, id, parse_id};
use crate::heap::Returns;
use crate::kv::hash_key;
use crate::{Broken, Connections, Registered};

impl window::Entry for Entry {
    fn key_len(&self) -> u32 {
        self.key_len
    }
}

/// The consequence of a completion, before the value is borrowed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    Nothing,
    Read(u32),
    Ended(u16, Outcome),
}

/// A PRISM-TX client. It does no input or output itself: its caller owns the queue pairs. Its memory is one
/// block ([`ClientConfig::arena_len`]), and no transaction allocates memory.
#[derive(Debug)]
pub struct Client {
    pub(super) config: ClientConfig,
    pub(super) grants: Vec<Grant>,
    pub(super) arena: Registered,
    pub(super) window: Window<Transaction, Entry>,
    /// The phase of `Returns` that each transaction holds at each shard.
    holds: Vec<Hold>,
    pub(super) returns: Vec<Returns>,
    /// Values that are returned to the caller.
    pub(super) scratch: Vec<u8>,
    number: u32,
    /// The latest timestamp used or seen. The next one is later.
    pub(super) last: Timestamp,
    /// True if a transaction has written several keys. Versions that later transactions write alone then
    /// also get their own addresses.
    pub(super) several: bool,
}

/// Seeds of the hashes that select a key's shard and its slot.
const SHARD_SEED: u64 = 1;
const SLOT_SEED: u64 = 2;

/// Maps a hash to `0..n` by its high bits.
pub(super) fn reduce(hash: u64, n: u64) -> u64 {
    ((u128::from(hash) * u128::from(n)) >> 64) as u64
}

/// Returns the shard of a key among `shards` shards. The result depends only on the arguments, so clients of
/// either design agree. The shards divide the range of hashes into equal parts, in order.
pub fn shard_of(key: &[u8], shards: usize) -> usize {
    if shards == 1 {
        return 0;
    }
    reduce(hash_key(SHARD_SEED, key), shards as u64) as usize
}

/// Returns the hash of a key within its shard.
pub(super) fn hash_of(key: &[u8]) -> u64 {
    hash_key(SLOT_SEED, key)
}

/// Returns the home slot of a key among `slots` slots.
pub(super) fn slot_of(key: &[u8], slots: u64) -> u64 {
    reduce(hash_of(key), slots)
}

impl Client {
    /// Returns a client of the shards that sent these grants, in the order of the shard map. Returns `None`
    /// if the configuration is invalid or exceeds the grants, or if the arena is too small.
    pub fn new(config: ClientConfig, grants: Vec<Grant>, arena: Registered) -> Option<Client> {
        let number = grants.first()?.session;
        let fits = |grant: &Grant| config.window <= grant.window && number < grant.sessions.min(CLIENTS);
        let sound = config.is_sound() && grants.len() <= 1 << 16 && grants.iter().all(fits);
        if !sound || arena.bytes.len() < config.arena_len(grants.len()) {
            return None;
        }
        let shards = grants.len();
        let returns = |shard| Returns::new(arena.clone(), config.returns_at(shard), config.most_returns());
        Some(Client {
            window: Window::new(config.window, config.max_keys, config.max_key),
            holds: vec![None; config.window as usize * shards],
            returns: (0..shards).map(returns).collect(),
            scratch: vec![0; config.max_key.max(config.max_value) as usize],
            number,
            last: grants[0].after,
            several: false,
            config,
            grants,
            arena,
        })
    }

    /// Returns the shard of a key.
    pub fn shard_of(&self, key: &[u8]) -> usize {
        shard_of(key, self.grants.len())
    }

    /// Returns the latest timestamp that the client has used or seen.
    pub fn latest(&self) -> Timestamp {
        self.last
    }

    /// Finds a key among those of a transaction, or adds it and starts its lookup.
    fn touch(
        &mut self,
        tx: Tx,
        key: &[u8],
        change: Option<Change>,
        connections: &mut impl Connections,
    ) -> Result<EntryId, Refused> {
        self.window.usable()?;
        let transaction = &self.window.transactions[tx.index()];
        if transaction.phase != Phase::Open {
            return Err(Refused::NotOpen);
        }
        let known = self.window.find(tx, key);
        let entry_index = match known {
            Some(entry_index) => entry_index,
            None => self.add(tx.0, key)?,
        };
        let entry = &mut self.window.entries[entry_index as usize];
        // The transaction had only written the key, so its value was not read yet.
        let first = change.is_none() && !entry.reads;
        match change {
            Some(change) => entry.change = Some(change),
            None if first => (entry.reads, entry.asked) = (true, true),
            None => {}
        }
        entry.further = entry.further.min(self.grants[usize::from(entry.shard)].reach - 1);
        if known.is_none() || first && matches!(entry.step, Step::Found | Step::NoSlot) {
            self.look(tx.0, entry_index, connections)?;
        }
        Ok(self.window.id_of(entry_index).1)
    }

    fn add(&mut self, tx: u16, key: &[u8]) -> Result<u32, Refused> {
        if key.len() > self.config.max_key as usize {
            return Err(Refused::KeyTooLong);
        }
        let shard = self.shard_of(key);
        let hash = slot_of(key, self.grants[shard].slot_count);
        let key_len = key.len() as u32;
        let entry = Entry { shard: shard as u16, key_len, hash, ..Entry::default() };
        let entry_index = self.window.add(tx, key, entry)?;
        let hold = &mut self.holds[usize::from(tx) * self.grants.len() + shard];
        if hold.is_none() {
            *hold = Some(self.returns[shard].begin());
        }
        Ok(entry_index)
    }

    fn end_of(&self, news: News) -> Option<Event<'static>> {
        match news {
            News::Ended(tx, outcome) => Some(self.tell_end(tx, outcome)),
            _ => None,
        }
    }

    /// Returns a transaction's timestamp: at or after the clock's reading, and later than all timestamps
    /// that this client has used or seen.
    pub(super) fn stamp(&mut self, tx: u16) -> Timestamp {
        let clock = self.window.transactions[usize::from(tx)].timestamp.clock();
        let versions = self
            .window
            .entries_of(tx)
            .map(|entry_index| self.window.entries[entry_index as usize].latest.version);
        let last = versions.fold(self.last, Timestamp::max);
        self.last = Timestamp::new(clock.max((last.clock() + 1).min(LAST_TICK)), self.number);
        self.window.transactions[usize::from(tx)].timestamp = self.last;
        self.last
    }

    fn take(
        &mut self,
        shard: usize,
        completion: &WorkCompletion,
        connections: &mut impl Connections,
    ) -> Result<News, Broken> {
        if completion.status != Status::Success {
            return Err(Broken::Completion(completion.status));
        }
        let (work, number) = parse_id(completion.id).ok_or(Broken::Protocol)?;
        let returns = self.returns.get_mut(shard).ok_or(Broken::Protocol)?;
        let news = match work {
            Work::Return => {
                returns.sent();
                News::Nothing
            }
            Work::Notice => {
                returns.received(
                    completion.byte_len,
                    id(Work::Notice, 0),
                    &mut connections.endpoint(shard),
                )?;
                News::Nothing
            }
            _ => self.progress(work, number, completion, connections)?,
        };
        if let News::Ended(_, Outcome::NoBuffer) = news {
            // Without transactions, no further buffers will come, so groups of any size are returned.
            (0..self.returns.len()).try_for_each(|shard| self.give_back(shard, true, connections))?;
        }
        self.give_back(shard, false, connections)?;
        Ok(news)
    }

    fn give_back(
        &mut self,
        shard: usize,
        all: bool,
        connections: &mut impl Connections,
    ) -> Result<(), Broken> {
        if self.returns[shard].is_due(all) {
            self.returns[shard].send(id(Work::Return, 0), all, &mut connections.endpoint(shard))?;
        }
        Ok(())
    }

    fn tell_value(&mut self, entry_index: u32) -> Event<'_> {
        let (tx, entry) = self.window.id_of(entry_index);
        let Entry { value_len, key_len, .. } = self.window.entries[entry_index as usize];
        let offset = self.config.landing_at(entry_index) + super::HEADER + key_len as usize;
        let value = value_len.map(|len| self.copied(offset, len));
        Event::Read { tx, entry, value }
    }

    /// Copies `len` bytes at an offset of the arena to memory that the NIC cannot access.
    fn copied(&mut self, offset: usize, len: u32) -> &[u8] {
        let bytes = &mut self.scratch[..len as usize];
        self.arena.read(offset, bytes);
        bytes
    }

    fn tell_end(&self, tx: u16, outcome: Outcome) -> Event<'static> {
        let Transaction { trips, resolved, .. } = self.window.transactions[usize::from(tx)];
        Event::Ended { tx: Tx(tx), outcome, round_trips: trips, resolved }
    }

    /// Frees a place of the window. The buffers that the transaction might access may then be reused.
    pub(super) fn release(&mut self, tx: u16) {
        let shards = self.grants.len();
        for shard in 0..shards {
            if let Some(phase) = self.holds[usize::from(tx) * shards + shard].take() {
                self.returns[shard].end(phase);
            }
        }
        self.window.transactions[usize::from(tx)].phase = Phase::Idle;
        self.window.end(tx);
    }
}

impl Machine for Client {
    fn start(&mut self, connections: &mut impl Connections) -> Result<(), Broken> {
        let notice_id = id(Work::Notice, 0);
        self.returns
            .iter()
            .enumerate()
            .try_for_each(|(shard, returns)| returns.listen(notice_id, &mut connections.endpoint(shard)))
    }

    fn begin(&mut self) -> Result<Tx, Refused> {
        self.window.usable()?;
        // A transaction returns at most two buffers per key, and some of other transactions.
        let reserve = self.config.most_returns() / 2;
        if self.returns.iter().any(|returns| returns.space() < reserve) {
            return Err(Refused::WindowFull);
        }
        self.window.begin(Transaction { phase: Phase::Open, ..Transaction::default() })
    }

    fn read(&mut self, tx: Tx, key: &[u8], connections: &mut impl Connections) -> Result<EntryId, Refused> {
        self.touch(tx, key, None, connections)
    }

    fn write(
        &mut self,
        tx: Tx,
        key: &[u8],
        value: &[u8],
        connections: &mut impl Connections,
    ) -> Result<EntryId, Refused> {
        let grant = &self.grants[self.shard_of(key)];
        let len = (super::HEADER + key.len() + value.len()) as u64;
        if value.len() > self.config.max_value as usize || grant.classes.for_len(len).is_none() {
            return Err(Refused::ValueTooLong);
        }
        let entry = self.touch(tx, key, Some(Change::Value(value.len() as u32)), connections)?;
        let offset = self.config.outgoing_at(self.window.entry_index(tx.0, entry.0));
        self.arena.write(offset + super::HEADER, key);
        self.arena.write(offset + super::HEADER + key.len(), value);
        Ok(entry)
    }

    fn delete(&mut self, tx: Tx, key: &[u8], connections: &mut impl Connections) -> Result<EntryId, Refused> {
        let entry = self.touch(tx, key, Some(Change::Absent), connections)?;
        let offset = self.config.outgoing_at(self.window.entry_index(tx.0, entry.0));
        self.arena.write(offset + super::HEADER, key);
        Ok(entry)
    }

    fn value(&mut self, tx: Tx, entry: EntryId) -> Option<Known<'_>> {
        if !self.window.has(tx, entry) {
            return None;
        }
        let entry_index = self.window.entry_index(tx.0, entry.0);
        let Entry { change, reads, asked, value_len, key_len, .. } =
            self.window.entries[entry_index as usize];
        let (offset, len) = match change {
            Some(Change::Value(len)) => (self.config.outgoing_at(entry_index), Some(len)),
            Some(Change::Absent) => (0, None),
            None if !reads || asked => return None,
            None => (self.config.landing_at(entry_index), value_len),
        };
        Some(Known::new(len.map(|len| self.copied(offset + super::HEADER + key_len as usize, len))))
    }

    fn commit(
        &mut self,
        tx: Tx,
        clock: u64,
        connections: &mut impl Connections,
    ) -> Result<Option<Event<'static>>, Refused> {
        self.window.usable()?;
        if self.window.transactions[tx.index()].phase != Phase::Open {
            return Err(Refused::NotOpen);
        }
        if clock.max(self.last.clock()) >= LAST_TICK {
            return Err(Refused::ClockOut);
        }
        let transaction = &mut self.window.transactions[tx.index()];
        // The clock's reading is kept here until all keys are found.
        (transaction.phase, transaction.timestamp) = (Phase::Closing, Timestamp::new(clock, self.number));
        let news =
            self.advance(tx.0, connections).inspect_err(|broken| self.window.broken = Some(*broken))?;
        Ok(self.end_of(news))
    }

    fn abort(&mut self, tx: Tx) -> Result<Option<Event<'static>>, Refused> {
        let transaction = &mut self.window.transactions[tx.index()];
        if transaction.phase != Phase::Open {
            return Err(Refused::NotOpen);
        }
        transaction.phase = Phase::Dropping(Outcome::Aborted);
        let news = self.drop_if_quiet(tx.0);
        Ok(self.end_of(news))
    }

    fn complete(
        &mut self,
        shard: usize,
        completion: &WorkCompletion,
        connections: &mut impl Connections,
    ) -> Result<Option<Event<'_>>, Broken> {
        if let Some(broken) = self.window.broken {
            return Err(broken);
        }
        let news = self
            .take(shard, completion, connections)
            .inspect_err(|broken| self.window.broken = Some(*broken))?;
        self.window.checked(|transaction| transaction.phase == Phase::Idle);
        Ok(match news {
            News::Nothing => None,
            News::Read(entry_index) => Some(self.tell_value(entry_index)),
            News::Ended(tx, outcome) => Some(self.tell_end(tx, outcome)),
        })
    }

    fn return_buffers(&mut self, shard: usize, connections: &mut impl Connections) -> Result<(), Broken> {
        self.give_back(shard, self.in_flight() == 0, connections)
    }

    fn in_flight(&self) -> usize {
        self.window.in_flight()
    }

    fn is_awaited(&self) -> bool {
        self.returns.iter().any(Returns::is_asked)
    }

    fn give_up(&mut self, status: Status) {
        self.window.give_up(status);
    }

    fn abandon(&mut self) -> Option<(Tx, Outcome)> {
        let broken = self.window.broken?;
        loop {
            let busy = |transaction: &Transaction| transaction.phase != Phase::Idle;
            let tx = self.window.transactions.iter().position(busy)?;
            let Transaction { phase, one_step, .. } = self.window.transactions[tx];
            self.release(tx as u16);
            let outcome = match phase {
                Phase::Finishing => continue,
                Phase::Deciding => Outcome::Unknown(broken),
                Phase::Preparing if one_step => Outcome::Unknown(broken),
                _ => Outcome::Failed(broken),
            };
            return Some((Tx(tx as u16), outcome));
        }
    }
}
