//! The client machine: a window of transactions over the queue pairs of several shards.

use remora_nic::{CompletionKind, WorkCompletion};
use remora_transport::{Instant, Status};

use super::calls::Reply;
use super::config::ClientConfig;
use super::grant::Grant;
use super::layout::{FRONT, LOG_FRONT, NEAR, Record, WORD, Word, object_of, record_len};
use super::verbs::{Work, parse_id};
use crate::block::abdlock::backoff;
use crate::txn::client::{hash_of, reduce, shard_of};
use crate::txn::transaction::Change;
use crate::txn::{EntryId, Event, Outcome, Refused, Tx};
use crate::words::u64_at;
use crate::ycsb::Random;
use crate::{Broken, Connections, Registered};

/// Where a transaction stands.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// There is none.
    #[default]
    Idle,
    /// It reads and writes.
    Open,
    /// Its owner wants it to commit; some keys are still being looked for.
    Closing,
    /// It takes its locks.
    Locking,
    /// It looks whether what it only read is still there.
    Validating,
    /// It writes and unlocks.
    Updating,
    /// It gives its locks back, and ends so.
    Unlocking(Outcome),
    /// It ends as soon as no operation is under way.
    Dropping(Outcome),
}

/// A transaction.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Transaction {
    pub phase: Phase,
    /// Keys.
    pub entries: u16,
    /// Completions to come.
    pub under_way: u32,
    /// Its number among this client's commits.
    pub number: u64,
    /// Round trips, one behind the other.
    pub trips: u32,
}

/// What is being done about a key.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Step {
    /// It is being looked for.
    #[default]
    Looking,
    /// It was found, or its absence was; nothing stands in the way of its read.
    Found,
    /// There is neither the key nor a place for it in the index.
    NoSlot,
    /// The answer about its lock, or its word, is to come.
    Waiting,
    /// It is locked by this transaction.
    Locked,
    /// Another transaction was faster.
    Refused,
    /// There is no space for its object.
    Full,
}

/// A key of a transaction.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Entry {
    pub step: Step,
    pub shard: u16,
    pub key_len: u32,
    pub hash: u64,
    /// The word of the index where its hash leads, and how many words further it looks.
    pub home: u64,
    pub further: u32,
    /// Where the index leads to. None: nowhere so far.
    pub object: Option<u64>,
    /// The program asked for its value.
    pub reads: bool,
    /// It is to be told when the value is there.
    pub asked: bool,
    pub change: Option<Change>,
    /// The version that was found.
    pub version: u64,
    /// Length of its value, if the key was there.
    pub value_len: Option<u32>,
    /// So often it was found locked.
    pub looks: u32,
    /// Round trips of the transaction when the present operation began.
    pub since: u32,
}

/// What a completion has led to, before anything is borrowed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    Nothing,
    Read(u32),
    Ended(u16, Outcome),
}

/// A client: pure, driven by whoever owns the queue pairs. Its memory is one block ([`ClientConfig::arena_len`]); nothing is allocated after it
/// was made.
#[derive(Debug)]
pub struct Client {
    pub(super) config: ClientConfig,
    pub(super) grants: Vec<Grant>,
    /// The largest of the shards' rooms.
    pub(super) max_pair: u32,
    pub(super) arena: Registered,
    pub(super) transactions: Vec<Transaction>,
    /// `max_keys` for each transaction.
    pub(super) entries: Vec<Entry>,
    keys: Vec<u8>,
    idle: Vec<u16>,
    /// What is looked at or put together.
    pub(super) scratch: Vec<u8>,
    /// Commits so far.
    pub(super) commits: u64,
    random: Random,
    broken: Option<Broken>,
}

impl Client {
    /// A client of the shards that gave these grants, in the order of the shard map; None if its numbers are not possible, it asks for
    /// more than was granted, or the arena is too small.
    pub fn new(config: ClientConfig, grants: Vec<Grant>, arena: Registered) -> Option<Client> {
        let max_pair = grants.iter().map(|grant| grant.max_pair).max()?;
        // The marks of a log are numbered by its keys.
        let fits = |grant: &Grant| {
            grant.is_sound() && config.window <= grant.window && config.max_keys == grant.max_keys
        };
        let sound = config.is_sound() && grants.len() <= 1 << 16 && grants.iter().all(fits);
        if !sound || arena.bytes.len() < config.arena_len(max_pair) {
            return None;
        }
        let (window, entries) = (config.window, (config.window * config.max_keys) as usize);
        Some(Client {
            transactions: vec![Transaction::default(); window as usize],
            entries: vec![Entry::default(); entries],
            keys: vec![0; entries * config.max_key as usize],
            idle: (0..window as u16).rev().collect(),
            scratch: vec![0; (WORD + record_len(max_pair)).max(NEAR as usize * 8)],
            commits: 0,
            random: Random::new(config.seed),
            broken: None,
            config,
            grants,
            max_pair,
            arena,
        })
    }

    /// Which shard a key is on.
    pub fn shard_of(&self, key: &[u8]) -> usize {
        shard_of(key, self.grants.len())
    }

    /// Once, before the first transaction: space for the answers of every shard.
    ///
    /// # Errors
    /// A queue did not take its receive request.
    pub fn start(&mut self, connections: &mut impl Connections) -> Result<(), Broken> {
        let calls = self.entries.len();
        (0..self.grants.len())
            .try_for_each(|shard| (0..calls).try_for_each(|_| self.post_receive(shard, connections)))
    }

    /// Transactions under way.
    pub fn in_flight(&self) -> usize {
        self.transactions.len() - self.idle.len()
    }

    /// When a transaction that has aborted so many times should be tried again: after a pause that doubles, a seeded random part of it.
    pub fn retry_at(&mut self, now: Instant, attempts: u32) -> Instant {
        now.after(backoff::pause(attempts, &mut self.random))
    }

    fn whole(&self) -> Result<(), Refused> {
        self.broken.map_or(Ok(()), |broken| Err(Refused::Broken(broken)))
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// `WindowFull`, `Broken`.
    pub fn begin(&mut self) -> Result<Tx, Refused> {
        self.whole()?;
        let tx = self.idle.pop().ok_or(Refused::WindowFull)?;
        self.transactions[usize::from(tx)] = Transaction { phase: Phase::Open, ..Transaction::default() };
        Ok(Tx(tx))
    }

    /// Reads a key: what was committed last comes as [`Event::Read`], once; from then on [`value`](Client::value) tells it. If the key
    /// stays locked the transaction ends as aborted instead.
    ///
    /// # Errors
    /// `NotOpen`, `TooManyKeys`, `KeyTooLong`, `Broken`.
    pub fn read(
        &mut self,
        tx: Tx,
        key: &[u8],
        connections: &mut impl Connections,
    ) -> Result<EntryId, Refused> {
        self.touch(tx, key, None, connections)
    }

    /// Writes a key: the value is copied, and seen by nobody before the commit.
    ///
    /// # Errors
    /// `NotOpen`, `TooManyKeys`, `KeyTooLong`, `ValueTooLong`, `Broken`.
    pub fn write(
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

    /// Removes a key, at the commit.
    ///
    /// # Errors
    /// As [`write`](Client::write).
    pub fn delete(
        &mut self,
        tx: Tx,
        key: &[u8],
        connections: &mut impl Connections,
    ) -> Result<EntryId, Refused> {
        let entry = self.touch(tx, key, Some(Change::Absent), connections)?;
        self.keep(tx, entry, key, &[]);
        Ok(entry)
    }

    fn keep(&self, tx: Tx, entry: EntryId, key: &[u8], value: &[u8]) {
        let of = self.entry_index(tx.0, entry.0);
        let at = self.config.outgoing_at(of, self.max_pair) + LOG_FRONT + FRONT;
        self.arena.write(at, key);
        self.arena.write(at + key.len(), value);
    }

    fn entry_index(&self, tx: u16, entry: u16) -> u32 {
        u32::from(tx) * self.config.max_keys + u32::from(entry)
    }

    /// The numbers of a transaction's keys.
    pub(super) fn entries_of(&self, tx: u16) -> std::ops::Range<u32> {
        let first = self.entry_index(tx, 0);
        first..first + u32::from(self.transactions[usize::from(tx)].entries)
    }

    fn key(&self, of: u32) -> &[u8] {
        let at = of as usize * self.config.max_key as usize;
        &self.keys[at..at + self.entries[of as usize].key_len as usize]
    }

    /// Finds a key among those of a transaction, or adds it and looks for it.
    fn touch(
        &mut self,
        tx: Tx,
        key: &[u8],
        change: Option<Change>,
        connections: &mut impl Connections,
    ) -> Result<EntryId, Refused> {
        self.whole()?;
        if self.transactions[tx.index()].phase != Phase::Open {
            return Err(Refused::NotOpen);
        }
        let known = self.entries_of(tx.0).find(|of| self.key(*of) == key);
        let of = match known {
            Some(of) => of,
            None => self.add(tx.0, key)?,
        };
        let entry = &mut self.entries[of as usize];
        // Who was only going to write has not been told the value yet.
        let first = change.is_none() && !entry.reads;
        match change {
            Some(change) => entry.change = Some(change),
            None if first => (entry.reads, entry.asked) = (true, true),
            None => {}
        }
        if known.is_none() || first && matches!(entry.step, Step::Found | Step::NoSlot) {
            (entry.further, entry.object) = (0, None);
            self.set_out(tx.0, of, Step::Looking);
            self.post_search(of, connections).inspect_err(|broken| self.broken = Some(*broken))?;
        }
        Ok(EntryId((of - u32::from(tx.0) * self.config.max_keys) as u16))
    }

    fn add(&mut self, tx: u16, key: &[u8]) -> Result<u32, Refused> {
        let shard = self.shard_of(key);
        let Grant { max_pair, homes, .. } = self.grants[shard];
        if key.len() > self.config.max_key.min(max_pair) as usize {
            return Err(Refused::KeyTooLong);
        }
        let entries = self.transactions[usize::from(tx)].entries;
        if u32::from(entries) == self.config.max_keys {
            return Err(Refused::TooManyKeys);
        }
        let of = self.entry_index(tx, entries);
        self.transactions[usize::from(tx)].entries += 1;
        let hash = hash_of(key);
        let at = of as usize * self.config.max_key as usize;
        self.keys[at..at + key.len()].copy_from_slice(key);
        let key_len = key.len() as u32;
        let (shard, home) = (shard as u16, reduce(hash, homes));
        self.entries[of as usize] = Entry { shard, key_len, hash, home, ..Entry::default() };
        Ok(of)
    }

    /// What a transaction knows of a key: what it wrote, or else what it read; None: nothing yet. Within is None if the key is absent.
    pub fn value(&mut self, tx: Tx, entry: EntryId) -> Option<Option<&[u8]>> {
        if entry.0 >= self.transactions[tx.index()].entries {
            return None;
        }
        let of = self.entry_index(tx.0, entry.0);
        let Entry { change, reads, asked, value_len, .. } = self.entries[of as usize];
        let (at, len) = match change {
            Some(Change::Value(len)) => (self.config.outgoing_at(of, self.max_pair) + LOG_FRONT, Some(len)),
            Some(Change::Absent) => (0, None),
            None if !reads || asked => return None,
            None => (self.config.landing_at(of, self.max_pair) + WORD, value_len),
        };
        Some(len.map(|len| self.copied(of, at, len)))
    }

    /// The value of a record in the arena.
    fn copied(&mut self, of: u32, record: usize, len: u32) -> &[u8] {
        let at = record + FRONT + self.entries[of as usize].key_len as usize;
        let value = &mut self.scratch[..len as usize];
        self.arena.read(at, value);
        value
    }

    /// Wants a transaction to commit. How it ended comes as [`Event::Ended`], or at once if nothing is to be done. The clock is PRISM-TX's;
    /// this protocol needs none.
    ///
    /// # Errors
    /// `NotOpen`, `Broken`.
    pub fn commit(
        &mut self,
        tx: Tx,
        _clock: u64,
        connections: &mut impl Connections,
    ) -> Result<Option<Event<'static>>, Refused> {
        self.whole()?;
        if self.transactions[tx.index()].phase != Phase::Open {
            return Err(Refused::NotOpen);
        }
        self.transactions[tx.index()].phase = Phase::Closing;
        let news = self.advance(tx.0, connections).inspect_err(|broken| self.broken = Some(*broken))?;
        Ok(self.end_of(news))
    }

    /// Gives a transaction up. If something of it is still under way, [`Event::Ended`] follows; else it has ended at once.
    ///
    /// # Errors
    /// `NotOpen`.
    pub fn abort(&mut self, tx: Tx) -> Result<Option<Event<'static>>, Refused> {
        if self.transactions[tx.index()].phase != Phase::Open {
            return Err(Refused::NotOpen);
        }
        let news = self.fail(tx.0, Outcome::Aborted);
        Ok(self.end_of(news))
    }

    fn end_of(&self, news: News) -> Option<Event<'static>> {
        let News::Ended(tx, outcome) = news else { return None };
        let round_trips = self.transactions[usize::from(tx)].trips;
        Some(Event::Ended { tx: Tx(tx), outcome, round_trips, resolved: 0 })
    }

    /// Takes a completion of a shard's queue pair.
    ///
    /// # Errors
    /// The queue pair has failed, and the client with it: what is under way comes back by [`abandon`](Client::abandon).
    pub fn complete(
        &mut self,
        shard: usize,
        completion: &WorkCompletion,
        connections: &mut impl Connections,
    ) -> Result<Option<Event<'_>>, Broken> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let news =
            self.take(shard, completion, connections).inspect_err(|broken| self.broken = Some(*broken))?;
        let News::Read(of) = news else { return Ok(self.end_of(news)) };
        let (tx, entry) = ((of / self.config.max_keys) as u16, (of % self.config.max_keys) as u16);
        let at = self.config.landing_at(of, self.max_pair) + WORD;
        let value = self.entries[of as usize].value_len.map(|len| self.copied(of, at, len));
        Ok(Some(Event::Read { tx: Tx(tx), entry: EntryId(entry), value }))
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
            let (reply, of) = completion.imm.and_then(Reply::parse).ok_or(Broken::Protocol)?;
            let tx = self.arrived(of)?;
            return self.answered(tx, of, reply, connections);
        }
        let (work, of) = parse_id(completion.id).ok_or(Broken::Protocol)?;
        let tx = self.arrived(of)?;
        if let (Work::Search | Work::Look, Phase::Dropping(_)) =
            (work, self.transactions[usize::from(tx)].phase)
        {
            return Ok(self.drop_if_quiet(tx));
        }
        match work {
            Work::Search => self.searched(tx, of, connections),
            Work::Look => self.landed(tx, of, connections),
            Work::Validate => self.validated(tx, of, connections),
            Work::Call => Err(Broken::Protocol),
        }
    }

    /// Something that was begun for a key has ended; the key's transaction.
    fn arrived(&mut self, of: u32) -> Result<u16, Broken> {
        let tx = (of / self.config.max_keys) as u16;
        let transaction = self.transactions.get_mut(usize::from(tx)).ok_or(Broken::Protocol)?;
        transaction.under_way = transaction.under_way.checked_sub(1).ok_or(Broken::Protocol)?;
        let trips = &mut transaction.trips;
        *trips = (*trips).max(self.entries[of as usize].since + 1);
        Ok(tx)
    }

    /// Something begins for a key, behind all that its transaction has done, and will end once.
    pub(super) fn set_out(&mut self, tx: u16, of: u32, step: Step) {
        let transaction = &mut self.transactions[usize::from(tx)];
        transaction.under_way += 1;
        let entry = &mut self.entries[of as usize];
        (entry.step, entry.since) = (step, transaction.trips);
    }

    /// A key is looked at once more, behind what was seen of it.
    fn proceed(&mut self, tx: u16, of: u32) {
        self.transactions[usize::from(tx)].under_way += 1;
        self.entries[of as usize].since += 1;
    }

    /// Words of the index are here.
    fn searched(&mut self, tx: u16, of: u32, connections: &mut impl Connections) -> Result<News, Broken> {
        let mut near = [0; NEAR as usize * 8];
        self.arena.read(self.config.landing_at(of, self.max_pair), &mut near);
        let entry = &mut self.entries[of as usize];
        let reach = self.grants[usize::from(entry.shard)].reach;
        for word in near.chunks_exact(8).map(|word| u64_at(word, 0)) {
            if entry.further == reach {
                break;
            }
            if word == 0 {
                return self.missed(tx, of, Step::Found, connections);
            }
            if let Some(object) = object_of(word, entry.hash) {
                entry.object = Some(object);
                self.look(tx, of, object, connections)?;
                return Ok(News::Nothing);
            }
            entry.further += 1;
        }
        self.look_further(tx, of, connections)
    }

    /// The next words of the index; when it has gone as far as keys may be, the key is nowhere.
    fn look_further(&mut self, tx: u16, of: u32, connections: &mut impl Connections) -> Result<News, Broken> {
        let entry = &self.entries[of as usize];
        if entry.further >= self.grants[usize::from(entry.shard)].reach {
            return self.missed(tx, of, Step::NoSlot, connections);
        }
        self.proceed(tx, of);
        self.post_search(of, connections)?;
        Ok(News::Nothing)
    }

    /// The key is not there.
    fn missed(
        &mut self,
        tx: u16,
        of: u32,
        step: Step,
        connections: &mut impl Connections,
    ) -> Result<News, Broken> {
        let entry = &mut self.entries[of as usize];
        (entry.step, entry.object, entry.version, entry.value_len) = (step, None, 0, None);
        self.found(tx, of, connections)
    }

    fn look(
        &mut self,
        tx: u16,
        of: u32,
        object: u64,
        connections: &mut impl Connections,
    ) -> Result<(), Broken> {
        self.proceed(tx, of);
        self.post_look(of, object, connections)
    }

    /// An object is here.
    fn landed(&mut self, tx: u16, of: u32, connections: &mut impl Connections) -> Result<News, Broken> {
        let max_pair = self.grants[usize::from(self.entries[of as usize].shard)].max_pair;
        let bytes = &mut self.scratch[..WORD + record_len(max_pair)];
        self.arena.read(self.config.landing_at(of, self.max_pair), bytes);
        let word = Word::parse(u64_at(bytes, 0));
        // Two of the same version are one state of the object.
        let record = Record::unseal(&bytes[WORD..]);
        let whole = record.filter(|record| word.holder == 0 && record.version == word.version);
        let Some(record) = whole else {
            let entry = &mut self.entries[of as usize];
            entry.looks += 1;
            let Some(object) = entry.object.filter(|_| entry.looks <= self.config.patience) else {
                return Ok(self.fail(tx, Outcome::Aborted));
            };
            self.look(tx, of, object, connections)?;
            return Ok(News::Nothing);
        };
        let key = &self.scratch[WORD + FRONT..][..record.key_len as usize];
        if *key != *self.key(of) {
            // Another one with half of its hash in common.
            let entry = &mut self.entries[of as usize];
            (entry.further, entry.looks, entry.object) = (entry.further + 1, 0, None);
            return self.look_further(tx, of, connections);
        }
        if record.value_len.is_some_and(|len| len > self.config.max_value) {
            return Ok(self.fail(tx, Outcome::TooLong));
        }
        let entry = &mut self.entries[of as usize];
        (entry.version, entry.value_len, entry.step) = (word.version, record.value_len, Step::Found);
        self.found(tx, of, connections)
    }

    /// A key was found, or its absence was.
    fn found(&mut self, tx: u16, of: u32, connections: &mut impl Connections) -> Result<News, Broken> {
        match self.transactions[usize::from(tx)].phase {
            Phase::Closing => self.advance(tx, connections),
            Phase::Open if std::mem::take(&mut self.entries[of as usize].asked) => Ok(News::Read(of)),
            _ => Ok(News::Nothing),
        }
    }

    /// A transaction cannot go on: it ends when nothing of it is under way.
    pub(super) fn fail(&mut self, tx: u16, outcome: Outcome) -> News {
        self.transactions[usize::from(tx)].phase = Phase::Dropping(outcome);
        self.drop_if_quiet(tx)
    }

    fn drop_if_quiet(&mut self, tx: u16) -> News {
        let transaction = &self.transactions[usize::from(tx)];
        match transaction.phase {
            Phase::Dropping(outcome) if transaction.under_way == 0 => self.end(tx, outcome),
            _ => News::Nothing,
        }
    }

    /// A transaction has ended: its place in the window is free again.
    pub(super) fn end(&mut self, tx: u16, outcome: Outcome) -> News {
        let transaction = &mut self.transactions[usize::from(tx)];
        (transaction.phase, transaction.entries) = (Phase::Idle, 0);
        self.idle.push(tx);
        News::Ended(tx, outcome)
    }

    /// Gives the client up, for instance because a shard is gone.
    pub fn give_up(&mut self, status: Status) {
        self.broken.get_or_insert(Broken::Completion(status));
    }

    /// After a failure: hands back the transactions under way, one a call. What they left at the shards is ended by
    /// [`recover`](super::recover).
    pub fn abandon(&mut self) -> Option<(Tx, Outcome)> {
        let broken = self.broken?;
        let busy = |transaction: &Transaction| transaction.phase != Phase::Idle;
        let tx = self.transactions.iter().position(busy)?;
        let outcome = match self.transactions[tx].phase {
            Phase::Updating => Outcome::Unknown(broken),
            _ => Outcome::Failed(broken),
        };
        self.end(tx as u16, outcome);
        Some((Tx(tx as u16), outcome))
    }
}
