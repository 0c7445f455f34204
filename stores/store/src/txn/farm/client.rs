//! The FaRM client: a window of transactions over the queue pairs of several shards.

use remora_nic::{CompletionKind, WorkCompletion};
use remora_transport::{Instant, Status};

use super::calls::Reply;
use super::config::ClientConfig;
use super::grant::Grant;
use super::layout::{FRONT, LOG_FRONT, NEAR, Record, WORD, Word, object_of, record_len};
use super::work::{Work, parse_id};
use crate::backoff;
use crate::random::Random;
use crate::txn::client::{hash_of, reduce, shard_of};
use crate::txn::machine::Machine;
use crate::txn::transaction::{Change, Known};
use crate::txn::window::{self, Window};
use crate::txn::{EntryId, Event, Outcome, Refused, Tx};
use crate::words::u64_at;
use crate::{Broken, Connections, Registered};

/// The phase of a transaction.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// The place in the window is free.
    #[default]
    Idle,
    /// The transaction reads and writes.
    Open,
    /// The caller has requested the commit; some keys are still being looked up.
    Closing,
    /// The transaction acquires its locks.
    Locking,
    /// The transaction validates the keys that it only read.
    Validating,
    /// The transaction writes and unlocks.
    Updating,
    /// The transaction releases its locks, and then ends with this outcome.
    Unlocking(Outcome),
    /// The transaction ends with this outcome when all its requests have completed.
    Dropping(Outcome),
}

/// The state of a transaction.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Transaction {
    pub phase: Phase,
    /// Number of completions to come.
    pub under_way: u32,
    /// Number of the transaction among this client's commits.
    pub number: u64,
    /// Number of sequential round trips.
    pub trips: u32,
}

/// The state of a key in a transaction.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Step {
    /// The key is being looked up.
    #[default]
    Looking,
    /// The lookup has ended: the key was found unlocked or is known to be absent.
    Found,
    /// The index contains neither the key nor a free word for it.
    NoSlot,
    /// The answer to its lock or validation request has not arrived.
    Waiting,
    /// The key is locked by this transaction.
    Locked,
    /// Another transaction has locked or changed the key.
    Refused,
    /// The shard has no space for the key's object.
    Full,
}

/// A key of a transaction.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Entry {
    pub step: Step,
    pub shard: u16,
    pub key_len: u32,
    pub hash: u64,
    /// The home word of the key in the index, and the distance at which the lookup continues.
    pub home: u64,
    pub further: u32,
    /// Number of the key's object; `None` while the index has led to none.
    pub object: Option<u64>,
    /// True if the caller reads the key.
    pub reads: bool,
    /// True if the value must be reported when it arrives.
    pub asked: bool,
    pub change: Option<Change>,
    /// The version that was read.
    pub version: u64,
    /// Length of the value that was read; `None` if the key is absent.
    pub value_len: Option<u32>,
    /// Number of times that the key was found locked.
    pub looks: u32,
    /// Number of the transaction's round trips when the current operation began.
    pub since: u32,
}

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

/// A FaRM client. It does no input or output itself: its caller owns the queue pairs. Its memory is one
/// block ([`ClientConfig::arena_len`]), and no transaction allocates memory.
#[derive(Debug)]
pub struct Client {
    pub(super) config: ClientConfig,
    pub(super) grants: Vec<Grant>,
    /// The shards' maximum length of key and value together, in bytes.
    pub(super) max_pair: u32,
    pub(super) arena: Registered,
    pub(super) window: Window<Transaction, Entry>,
    /// A buffer for records that are checked or composed.
    pub(super) scratch: Vec<u8>,
    /// Number of commits so far.
    pub(super) commits: u64,
    random: Random,
}

impl Client {
    /// Returns a client of the shards that sent these grants, in the order of the shard map. Returns `None`
    /// if the configuration is invalid or exceeds the grants, or if the arena is too small.
    pub fn new(config: ClientConfig, grants: Vec<Grant>, arena: Registered) -> Option<Client> {
        let max_pair = grants.iter().map(|grant| grant.max_pair).max()?;
        // Log entries are numbered by place and key, so client and shard must agree on the number of keys.
        let fits = |grant: &Grant| {
            grant.is_sound() && config.window <= grant.window && config.max_keys == grant.max_keys
        };
        let sound = config.is_sound() && grants.len() <= 1 << 16 && grants.iter().all(fits);
        if !sound || arena.bytes.len() < config.arena_len(max_pair) {
            return None;
        }
        Some(Client {
            window: Window::new(config.window, config.max_keys, config.max_key),
            scratch: vec![0; (WORD + record_len(max_pair)).max(NEAR as usize * 8)],
            commits: 0,
            random: Random::new(config.seed),
            config,
            grants,
            max_pair,
            arena,
        })
    }

    /// Returns the shard of a key.
    pub fn shard_of(&self, key: &[u8]) -> usize {
        shard_of(key, self.grants.len())
    }

    /// Returns the time at which a transaction that has aborted `attempts` times should be retried: after a
    /// random pause whose bound doubles.
    pub fn retry_at(&mut self, now: Instant, attempts: u32) -> Instant {
        now.after(backoff::pause(attempts, &mut self.random))
    }

    fn keep(&self, tx: Tx, entry: EntryId, key: &[u8], value: &[u8]) {
        let entry_index = self.window.entry_index(tx.0, entry.0);
        let offset = self.config.outgoing_at(entry_index, self.max_pair) + LOG_FRONT + FRONT;
        self.arena.write(offset, key);
        self.arena.write(offset + key.len(), value);
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
        if self.window.transactions[tx.index()].phase != Phase::Open {
            return Err(Refused::NotOpen);
        }
        let known = self.window.find(tx, key);
        let entry_index = match known {
            Some(entry_index) => entry_index,
            None => self.add(tx.0, key)?,
        };
        let entry = &mut self.window.entries[entry_index as usize];
        // The transaction had only written the key, so its value was not reported yet.
        let first = change.is_none() && !entry.reads;
        match change {
            Some(change) => entry.change = Some(change),
            None if first => (entry.reads, entry.asked) = (true, true),
            None => {}
        }
        if known.is_none() || first && matches!(entry.step, Step::Found | Step::NoSlot) {
            (entry.further, entry.object) = (0, None);
            self.set_out(tx.0, entry_index, Step::Looking);
            self.post_search(entry_index, connections)
                .inspect_err(|broken| self.window.broken = Some(*broken))?;
        }
        Ok(self.window.id_of(entry_index).1)
    }

    fn add(&mut self, tx: u16, key: &[u8]) -> Result<u32, Refused> {
        let shard = self.shard_of(key);
        let Grant { max_pair, homes, .. } = self.grants[shard];
        if key.len() > self.config.max_key.min(max_pair) as usize {
            return Err(Refused::KeyTooLong);
        }
        let hash = hash_of(key);
        let shard = shard as u16;
        let home = reduce(hash, homes);
        let key_len = key.len() as u32;
        self.window.add(tx, key, Entry { shard, key_len, hash, home, ..Entry::default() })
    }

    /// Copies the value of a record from the arena.
    fn copied(&mut self, entry_index: u32, record: usize, len: u32) -> &[u8] {
        let offset = record + FRONT + self.window.entries[entry_index as usize].key_len as usize;
        let value = &mut self.scratch[..len as usize];
        self.arena.read(offset, value);
        value
    }

    fn end_of(&self, news: News) -> Option<Event<'static>> {
        let News::Ended(tx, outcome) = news else { return None };
        let round_trips = self.window.transactions[usize::from(tx)].trips;
        Some(Event::Ended { tx: Tx(tx), outcome, round_trips, resolved: 0 })
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
        if completion.kind == CompletionKind::Receive {
            self.post_receive(shard, connections)?;
            let (reply, entry_index) = completion.imm.and_then(Reply::parse).ok_or(Broken::Protocol)?;
            let tx = self.arrived(entry_index)?;
            return self.answered(tx, entry_index, reply, connections);
        }
        let (work, entry_index) = parse_id(completion.id).ok_or(Broken::Protocol)?;
        let tx = self.arrived(entry_index)?;
        if let (Work::Search | Work::Look, Phase::Dropping(_)) =
            (work, self.window.transactions[usize::from(tx)].phase)
        {
            return Ok(self.drop_if_quiet(tx));
        }
        match work {
            Work::Search => self.searched(tx, entry_index, connections),
            Work::Look => self.landed(tx, entry_index, connections),
            Work::Validate => self.validated(tx, entry_index, connections),
            Work::Call => Err(Broken::Protocol),
        }
    }

    /// Notes that an operation on a key has completed. Returns the key's transaction.
    fn arrived(&mut self, entry_index: u32) -> Result<u16, Broken> {
        let tx = (entry_index / self.config.max_keys) as u16;
        let transaction = self.window.transactions.get_mut(usize::from(tx)).ok_or(Broken::Protocol)?;
        transaction.under_way = transaction.under_way.checked_sub(1).ok_or(Broken::Protocol)?;
        let trips = &mut transaction.trips;
        *trips = (*trips).max(self.window.entries[entry_index as usize].since + 1);
        Ok(tx)
    }

    /// Notes that an operation on a key begins after all that its transaction has done. It brings one
    /// completion.
    pub(super) fn set_out(&mut self, tx: u16, entry_index: u32, step: Step) {
        let transaction = &mut self.window.transactions[usize::from(tx)];
        transaction.under_way += 1;
        let entry = &mut self.window.entries[entry_index as usize];
        (entry.step, entry.since) = (step, transaction.trips);
    }

    /// Notes that another READ of a key follows the previous one.
    fn proceed(&mut self, tx: u16, entry_index: u32) {
        self.window.transactions[usize::from(tx)].under_way += 1;
        self.window.entries[entry_index as usize].since += 1;
    }

    /// Processes words of the index.
    fn searched(
        &mut self,
        tx: u16,
        entry_index: u32,
        connections: &mut impl Connections,
    ) -> Result<News, Broken> {
        let mut near = [0; NEAR as usize * 8];
        self.arena.read(self.config.landing_at(entry_index, self.max_pair), &mut near);
        let entry = &mut self.window.entries[entry_index as usize];
        let reach = self.grants[usize::from(entry.shard)].reach;
        for word in near.chunks_exact(8).map(|word| u64_at(word, 0)) {
            if entry.further == reach {
                break;
            }
            if word == 0 {
                return self.missed(tx, entry_index, Step::Found, connections);
            }
            if let Some(object) = object_of(word, entry.hash) {
                entry.object = Some(object);
                self.look(tx, entry_index, object, connections)?;
                return Ok(News::Nothing);
            }
            entry.further += 1;
        }
        self.look_further(tx, entry_index, connections)
    }

    /// Reads the next words of the index. At the maximum distance, the key is absent.
    fn look_further(
        &mut self,
        tx: u16,
        entry_index: u32,
        connections: &mut impl Connections,
    ) -> Result<News, Broken> {
        let entry = &self.window.entries[entry_index as usize];
        if entry.further >= self.grants[usize::from(entry.shard)].reach {
            return self.missed(tx, entry_index, Step::NoSlot, connections);
        }
        self.proceed(tx, entry_index);
        self.post_search(entry_index, connections)?;
        Ok(News::Nothing)
    }

    /// Processes the absence of a key.
    fn missed(
        &mut self,
        tx: u16,
        entry_index: u32,
        step: Step,
        connections: &mut impl Connections,
    ) -> Result<News, Broken> {
        let entry = &mut self.window.entries[entry_index as usize];
        (entry.step, entry.object, entry.version, entry.value_len) = (step, None, 0, None);
        self.found(tx, entry_index, connections)
    }

    fn look(
        &mut self,
        tx: u16,
        entry_index: u32,
        object: u64,
        connections: &mut impl Connections,
    ) -> Result<(), Broken> {
        self.proceed(tx, entry_index);
        self.post_look(entry_index, object, connections)
    }

    /// Processes an object that was read.
    fn landed(
        &mut self,
        tx: u16,
        entry_index: u32,
        connections: &mut impl Connections,
    ) -> Result<News, Broken> {
        let max_pair = self.grants[usize::from(self.window.entries[entry_index as usize].shard)].max_pair;
        let bytes = &mut self.scratch[..WORD + record_len(max_pair)];
        self.arena.read(self.config.landing_at(entry_index, self.max_pair), bytes);
        let word = Word::parse(u64_at(bytes, 0));
        // If the word and the record have the same version, both belong to one state of the object.
        let record = Record::unseal(&bytes[WORD..]);
        let whole = record.filter(|record| word.holder == 0 && record.version == word.version);
        let Some(record) = whole else {
            let entry = &mut self.window.entries[entry_index as usize];
            entry.looks += 1;
            let Some(object) = entry.object.filter(|_| entry.looks <= self.config.patience) else {
                return Ok(self.fail(tx, Outcome::Aborted));
            };
            self.look(tx, entry_index, object, connections)?;
            return Ok(News::Nothing);
        };
        let key = &self.scratch[WORD + FRONT..][..record.key_len as usize];
        if *key != *self.window.key(entry_index) {
            // The object belongs to another key with the same half of the hash.
            let entry = &mut self.window.entries[entry_index as usize];
            (entry.further, entry.looks, entry.object) = (entry.further + 1, 0, None);
            return self.look_further(tx, entry_index, connections);
        }
        if record.value_len.is_some_and(|len| len > self.config.max_value) {
            return Ok(self.fail(tx, Outcome::TooLong));
        }
        let entry = &mut self.window.entries[entry_index as usize];
        (entry.version, entry.value_len, entry.step) = (word.version, record.value_len, Step::Found);
        self.found(tx, entry_index, connections)
    }

    /// Continues a transaction after the lookup of a key has ended.
    fn found(
        &mut self,
        tx: u16,
        entry_index: u32,
        connections: &mut impl Connections,
    ) -> Result<News, Broken> {
        match self.window.transactions[usize::from(tx)].phase {
            Phase::Closing => self.advance(tx, connections),
            Phase::Open if std::mem::take(&mut self.window.entries[entry_index as usize].asked) => {
                Ok(News::Read(entry_index))
            }
            _ => Ok(News::Nothing),
        }
    }

    /// Ends a transaction that cannot continue, once all its requests have completed.
    pub(super) fn fail(&mut self, tx: u16, outcome: Outcome) -> News {
        self.window.transactions[usize::from(tx)].phase = Phase::Dropping(outcome);
        self.drop_if_quiet(tx)
    }

    fn drop_if_quiet(&mut self, tx: u16) -> News {
        let transaction = &self.window.transactions[usize::from(tx)];
        match transaction.phase {
            Phase::Dropping(outcome) if transaction.under_way == 0 => self.end(tx, outcome),
            _ => News::Nothing,
        }
    }

    /// Ends a transaction and frees its place in the window.
    pub(super) fn end(&mut self, tx: u16, outcome: Outcome) -> News {
        self.window.transactions[usize::from(tx)].phase = Phase::Idle;
        self.window.end(tx);
        News::Ended(tx, outcome)
    }
}

impl Machine for Client {
    fn start(&mut self, connections: &mut impl Connections) -> Result<(), Broken> {
        let calls = self.window.entries.len();
        (0..self.grants.len())
            .try_for_each(|shard| (0..calls).try_for_each(|_| self.post_receive(shard, connections)))
    }

    fn begin(&mut self) -> Result<Tx, Refused> {
        self.window.usable()?;
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
        let max_pair = self.grants[self.shard_of(key)].max_pair as usize;
        if value.len() > self.config.max_value as usize || key.len() + value.len() > max_pair {
            return Err(Refused::ValueTooLong);
        }
        let entry = self.touch(tx, key, Some(Change::Value(value.len() as u32)), connections)?;
        self.keep(tx, entry, key, value);
        Ok(entry)
    }

    fn delete(&mut self, tx: Tx, key: &[u8], connections: &mut impl Connections) -> Result<EntryId, Refused> {
        let entry = self.touch(tx, key, Some(Change::Absent), connections)?;
        self.keep(tx, entry, key, &[]);
        Ok(entry)
    }

    fn value(&mut self, tx: Tx, entry: EntryId) -> Option<Known<'_>> {
        if !self.window.has(tx, entry) {
            return None;
        }
        let entry_index = self.window.entry_index(tx.0, entry.0);
        let Entry { change, reads, asked, value_len, .. } = self.window.entries[entry_index as usize];
        let (record, len) = match change {
            Some(Change::Value(len)) => {
                (self.config.outgoing_at(entry_index, self.max_pair) + LOG_FRONT, Some(len))
            }
            Some(Change::Absent) => (0, None),
            None if !reads || asked => return None,
            None => (self.config.landing_at(entry_index, self.max_pair) + WORD, value_len),
        };
        Some(Known::new(len.map(|len| self.copied(entry_index, record, len))))
    }

    fn commit(
        &mut self,
        tx: Tx,
        _clock: u64,
        connections: &mut impl Connections,
    ) -> Result<Option<Event<'static>>, Refused> {
        self.window.usable()?;
        if self.window.transactions[tx.index()].phase != Phase::Open {
            return Err(Refused::NotOpen);
        }
        self.window.transactions[tx.index()].phase = Phase::Closing;
        let news =
            self.advance(tx.0, connections).inspect_err(|broken| self.window.broken = Some(*broken))?;
        Ok(self.end_of(news))
    }

    fn abort(&mut self, tx: Tx) -> Result<Option<Event<'static>>, Refused> {
        if self.window.transactions[tx.index()].phase != Phase::Open {
            return Err(Refused::NotOpen);
        }
        let news = self.fail(tx.0, Outcome::Aborted);
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
        let News::Read(entry_index) = news else { return Ok(self.end_of(news)) };
        let (tx, entry) = self.window.id_of(entry_index);
        let record = self.config.landing_at(entry_index, self.max_pair) + WORD;
        let value = self.window.entries[entry_index as usize]
            .value_len
            .map(|len| self.copied(entry_index, record, len));
        Ok(Some(Event::Read { tx, entry, value }))
    }

    fn in_flight(&self) -> usize {
        self.window.in_flight()
    }

    fn give_up(&mut self, status: Status) {
        self.window.give_up(status);
    }

    fn abandon(&mut self) -> Option<(Tx, Outcome)> {
        let broken = self.window.broken?;
        let busy = |transaction: &Transaction| transaction.phase != Phase::Idle;
        let tx = self.window.transactions.iter().position(busy)?;
        let outcome = match self.window.transactions[tx].phase {
            Phase::Updating => Outcome::Unknown(broken),
            _ => Outcome::Failed(broken),
        };
        self.end(tx as u16, outcome);
        Some((Tx(tx as u16), outcome))
    }
}
