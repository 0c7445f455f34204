//! The commit of FaRM: lock, validate, update.

use super::calls::{Ask, Reply};
use super::client::{Client, News, Phase, Step};
use super::config::Rules;
use super::layout::{FRONT, LOG_FRONT, NONE, Record, WORD, Word};
use crate::txn::transaction::Change;
use crate::txn::{Outcome, Timestamp};
use crate::{Broken, Connections};

impl Client {
    /// Acquires the locks once all keys are found.
    pub(super) fn advance(&mut self, tx: u16, connections: &mut impl Connections) -> Result<News, Broken> {
        let mut writes = 0;
        let mut reads = 0;
        for entry_index in self.window.entries_of(tx) {
            let entry = &self.window.entries[entry_index as usize];
            match entry.step {
                Step::Found if entry.change.is_some() => writes += 1,
                Step::Found => reads += 1,
                // No word of the index that may point to the key does so or is free, so the key is absent
                // for good.
                Step::NoSlot if entry.change.is_none() => {}
                Step::NoSlot => return Ok(self.fail(tx, Outcome::TableFull)),
                _ => return Ok(News::Nothing),
            }
        }
        if writes == 0 && reads <= 1 {
            // A single version of a single key was current when it was read.
            return Ok(self.end(tx, Outcome::Committed(Timestamp::default())));
        }
        self.commits += 1;
        self.window.transactions[usize::from(tx)].number = self.commits;
        match writes {
            0 => self.validate(tx, connections),
            _ => self.lock_all(tx, connections),
        }
    }

    fn lock_all(&mut self, tx: u16, connections: &mut impl Connections) -> Result<News, Broken> {
        self.window.transactions[usize::from(tx)].phase = Phase::Locking;
        for entry_index in self.window.entries_of(tx) {
            if self.window.entries[entry_index as usize].change.is_some() {
                let len = self.compose(tx, entry_index);
                self.set_out(tx, entry_index, Step::Waiting);
                self.post_lock(entry_index, len, connections)?;
            }
        }
        Ok(News::Nothing)
    }

    fn record(&self, entry_index: u32) -> Record {
        let entry = &self.window.entries[entry_index as usize];
        let value_len = match entry.change {
            Some(Change::Value(len)) => Some(len),
            _ => None,
        };
        Record { version: super::layout::next(entry.version), key_len: entry.key_len, value_len }
    }

    /// Composes a key's log entry in the arena, around the value that was written there. Returns the length
    /// of its record.
    fn compose(&mut self, tx: u16, entry_index: u32) -> usize {
        let record = self.record(entry_index);
        let offset = self.config.outgoing_at(entry_index, self.max_pair);
        let bytes = &mut self.scratch[..record.len()];
        self.arena.read(offset + LOG_FRONT, bytes);
        let len = record.seal(bytes);
        self.arena.write(offset, &self.window.transactions[usize::from(tx)].number.to_le_bytes());
        let object = self.window.entries[entry_index as usize].object.unwrap_or(NONE);
        self.arena.write(offset + 8, &object.to_le_bytes());
        let bytes = &self.scratch[..len];
        self.arena.write(offset + LOG_FRONT, &bytes[..FRONT]);
        self.arena.write(offset + LOG_FRONT + len - 8, &bytes[len - 8..]);
        len
    }

    /// Processes a shard's answer to a call.
    pub(super) fn answered(
        &mut self,
        tx: u16,
        entry_index: u32,
        reply: Reply,
        connections: &mut impl Connections,
    ) -> Result<News, Broken> {
        let step = match reply {
            Reply::Done => Step::Locked,
            Reply::Changed => Step::Refused,
            Reply::Full => Step::Full,
        };
        self.next(tx, entry_index, step, connections)
    }

    /// Processes the word of a key that was only read.
    pub(super) fn validated(
        &mut self,
        tx: u16,
        entry_index: u32,
        connections: &mut impl Connections,
    ) -> Result<News, Broken> {
        let mut word = [0; WORD];
        self.arena.read(self.config.entry_at(entry_index, self.max_pair), &mut word);
        let entry = &self.window.entries[entry_index as usize];
        // The key is still absent if the index word that a new object would use is still empty.
        let wanted = entry.object.map_or(0, |_| Word::free(entry.version).pack());
        let step = if u64::from_le_bytes(word) == wanted { Step::Found } else { Step::Refused };
        self.next(tx, entry_index, step, connections)
    }

    /// Starts the next round when all answers of a round have arrived.
    fn next(
        &mut self,
        tx: u16,
        entry_index: u32,
        step: Step,
        connections: &mut impl Connections,
    ) -> Result<News, Broken> {
        self.window.entries[entry_index as usize].step = step;
        if self.window.transactions[usize::from(tx)].under_way > 0 {
            return Ok(News::Nothing);
        }
        let any = |step: Step| {
            self.window
                .entries_of(tx)
                .any(|entry_index| self.window.entries[entry_index as usize].step == step)
        };
        let full = any(Step::Full);
        let refused = any(Step::Refused);
        match self.window.transactions[usize::from(tx)].phase {
            Phase::Locking | Phase::Validating if full => self.unlock(tx, Outcome::TableFull, connections),
            Phase::Locking | Phase::Validating if refused => self.unlock(tx, Outcome::Aborted, connections),
            Phase::Locking => self.validate(tx, connections),
            Phase::Validating => self.update(tx, connections),
            Phase::Updating => Ok(self.end(tx, Outcome::Committed(Timestamp::default()))),
            Phase::Unlocking(outcome) => Ok(self.end(tx, outcome)),
            _ => Err(Broken::Protocol),
        }
    }

    /// Validates the keys that were only read, after all written keys are locked. A written key is protected
    /// by its own lock.
    fn validate(&mut self, tx: u16, connections: &mut impl Connections) -> Result<News, Broken> {
        self.window.transactions[usize::from(tx)].phase = Phase::Validating;
        for entry_index in self.window.entries_of(tx) {
            let read = self.window.entries[entry_index as usize].step == Step::Found;
            if read && self.config.rules != Rules::ReadsUnchecked {
                self.set_out(tx, entry_index, Step::Waiting);
                self.post_validate(entry_index, connections)?;
            }
        }
        match self.window.transactions[usize::from(tx)].under_way {
            0 => self.update(tx, connections),
            _ => Ok(News::Nothing),
        }
    }

    /// Sends each shard an update, since nothing prevents the commit any more.
    fn update(&mut self, tx: u16, connections: &mut impl Connections) -> Result<News, Broken> {
        self.finish(tx, Phase::Updating, Ask::Update, Outcome::Committed(Timestamp::default()), connections)
    }

    fn unlock(
        &mut self,
        tx: u16,
        outcome: Outcome,
        connections: &mut impl Connections,
    ) -> Result<News, Broken> {
        self.finish(tx, Phase::Unlocking(outcome), Ask::Unlock, outcome, connections)
    }

    /// Sends a request to each shard where the transaction has locks. Without locks, the transaction ends at
    /// once.
    fn finish(
        &mut self,
        tx: u16,
        phase: Phase,
        ask: Ask,
        outcome: Outcome,
        connections: &mut impl Connections,
    ) -> Result<News, Broken> {
        self.window.transactions[usize::from(tx)].phase = phase;
        for entry_index in self.window.entries_of(tx) {
            if self.window.entries[entry_index as usize].step == Step::Locked
                && self.is_first_there(tx, entry_index)
            {
                self.set_out(tx, entry_index, Step::Locked);
                self.post_end(entry_index, ask, connections)?;
            }
        }
        match self.window.transactions[usize::from(tx)].under_way {
            0 => Ok(self.end(tx, outcome)),
            _ => Ok(News::Nothing),
        }
    }

    /// Returns true if the key is the first that the transaction has locked at its shard.
    fn is_first_there(&self, tx: u16, entry_index: u32) -> bool {
        let shard = self.window.entries[entry_index as usize].shard;
        let is_there = |other: &u32| {
            let other = &self.window.entries[*other as usize];
            other.step == Step::Locked && other.shard == shard
        };
        self.window.entries_of(tx).find(is_there) == Some(entry_index)
    }
}
