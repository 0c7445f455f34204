//! The commit: lock, validate, update.

use super::client::{Client, Entry, News, Phase, Step};
use super::config::Rules;
use super::layout::{FRONT, LOG_FRONT, Record, Word};
use super::verbs::Work;
use crate::txn::transaction::Change;
use crate::txn::{Outcome, Timestamp};
use crate::{Broken, Fleet};

impl Client {
    /// All keys are to be found; then the locks are taken.
    pub(super) fn advance(&mut self, tx: u16, fleet: &mut impl Fleet) -> Result<News, Broken> {
        let mut clash = None;
        let (mut writes, mut reads) = (0, 0);
        for of in self.entries_of(tx) {
            let entry = &self.entries[of as usize];
            match entry.step {
                Step::Found if entry.change.is_some() => {
                    writes += 1;
                    clash = clash.or((entry.fresh && self.meets(tx, of)).then_some(of));
                }
                Step::Found => reads += 1,
                // No slot that it could be in holds it or is free: it is absent for ever.
                Step::NoSlot if entry.change.is_none() => {}
                Step::NoSlot => return Ok(self.fail(tx, Outcome::TableFull)),
                _ => return Ok(News::Nothing),
            }
        }
        if let Some(of) = clash {
            // Two new keys want one slot: the later one goes to the next.
            return self.look_further(tx, of, fleet);
        }
        if writes == 0 && reads <= 1 {
            // One version of one key is what was there when it was read.
            return Ok(self.end(tx, Outcome::Committed(Timestamp::default())));
        }
        self.commits += 1;
        self.transactions[usize::from(tx)].number = self.commits;
        match writes {
            0 => self.validate(tx, fleet),
            _ => self.lock_all(tx, fleet),
        }
    }

    fn is_same_slot(&self, one: u32, other: u32) -> bool {
        let shard = |of: u32| self.entries[of as usize].shard;
        shard(one) == shard(other) && self.slot(one) == self.slot(other)
    }

    /// Does an earlier key that the transaction writes stand in the same slot?
    fn meets(&self, tx: u16, of: u32) -> bool {
        let writes = |other: u32| self.entries[other as usize].change.is_some();
        self.entries_of(tx)
            .take_while(|other| *other < of)
            .any(|other| writes(other) && self.is_same_slot(of, other))
    }

    /// Is a key that was only read, and not there, in a slot that the transaction has locked with the same version?
    fn is_covered(&self, tx: u16, of: u32) -> bool {
        let version = self.entries[of as usize].version;
        self.entries_of(tx).any(|other| {
            let Entry { step, version: locked, .. } = self.entries[other as usize];
            step == Step::Locked && locked == version && self.is_same_slot(of, other)
        })
    }

    fn lock_all(&mut self, tx: u16, fleet: &mut impl Fleet) -> Result<News, Broken> {
        self.transactions[usize::from(tx)].phase = Phase::Locking;
        for of in self.entries_of(tx) {
            if self.entries[of as usize].change.is_some() {
                let len = self.compose(tx, of);
                self.set_out(tx, of, Step::Waiting);
                self.post_lock(of, len, fleet)?;
            }
        }
        Ok(News::Nothing)
    }

    fn record(&self, of: u32) -> Record {
        let entry = &self.entries[of as usize];
        let value_len = match entry.change {
            Some(Change::Value(len)) => Some(len),
            _ => None,
        };
        Record { version: super::layout::next(entry.version), key_len: entry.key_len, value_len }
    }

    /// Puts a key's log entry together in the arena, around what was written there; how long its record is.
    fn compose(&mut self, tx: u16, of: u32) -> usize {
        let (record, at) = (self.record(of), self.config.outgoing_at(of, self.room));
        let bytes = &mut self.scratch[..record.len()];
        self.arena.read(at + LOG_FRONT, bytes);
        let len = record.seal(bytes);
        self.arena.write(at, &self.transactions[usize::from(tx)].number.to_le_bytes());
        self.arena.write(at + 8, &self.slot(of).to_le_bytes());
        let bytes = &self.scratch[..len];
        self.arena.write(at + LOG_FRONT, &bytes[..FRONT]);
        self.arena.write(at + LOG_FRONT + len - 8, &bytes[len - 8..]);
        len
    }

    /// A completion of a commit. When all answers of a round are here, the next begins.
    pub(super) fn answered(
        &mut self,
        tx: u16,
        (work, of): (Work, u32),
        fleet: &mut impl Fleet,
    ) -> Result<News, Broken> {
        let mut old = [0; 8];
        self.arena.read(self.config.entry_at(of, self.room), &mut old);
        let entry = &mut self.entries[of as usize];
        let unchanged = u64::from_le_bytes(old) == Word::free(entry.version).pack();
        let step = match work {
            Work::Lock => Step::Locked,
            Work::Validate => Step::Found,
            _ => entry.step,
        };
        let round = matches!(work, Work::Lock | Work::Validate);
        entry.step = if round && !unchanged { Step::Refused } else { step };
        if self.transactions[usize::from(tx)].under_way > 0 {
            return Ok(News::Nothing);
        }
        let refused = self.entries_of(tx).any(|of| self.entries[of as usize].step == Step::Refused);
        match self.transactions[usize::from(tx)].phase {
            Phase::Locking | Phase::Validating if refused => self.unlock(tx, fleet),
            Phase::Locking => self.validate(tx, fleet),
            Phase::Validating => self.update(tx, fleet),
            Phase::Updating => Ok(self.end(tx, Outcome::Committed(Timestamp::default()))),
            Phase::Unlocking => Ok(self.end(tx, Outcome::Aborted)),
            _ => Err(Broken::Protocol),
        }
    }

    /// All that is written is locked: what was only read is looked at again. Its own lock says that a written key has not changed.
    fn validate(&mut self, tx: u16, fleet: &mut impl Fleet) -> Result<News, Broken> {
        self.transactions[usize::from(tx)].phase = Phase::Validating;
        for of in self.entries_of(tx) {
            let read = self.entries[of as usize].step == Step::Found && !self.is_covered(tx, of);
            if read && self.config.rules != Rules::ReadsUnchecked {
                self.set_out(tx, of, Step::Waiting);
                self.post_validate(of, fleet)?;
            }
        }
        match self.transactions[usize::from(tx)].under_way {
            0 => self.update(tx, fleet),
            _ => Ok(News::Nothing),
        }
    }

    /// Nothing stands in the way any more. Each shard is told so before the first record is written there.
    fn update(&mut self, tx: u16, fleet: &mut impl Fleet) -> Result<News, Broken> {
        self.transactions[usize::from(tx)].phase = Phase::Updating;
        for of in self.entries_of(tx) {
            if self.entries[of as usize].step != Step::Locked {
                continue;
            }
            let shard = self.entries[of as usize].shard;
            let is_here = |other: u32| {
                let other = &self.entries[other as usize];
                other.step == Step::Locked && other.shard == shard
            };
            if !self.entries_of(tx).take_while(|other| *other < of).any(is_here) {
                self.post_mark(of, fleet)?;
            }
            self.set_out(tx, of, Step::Locked);
            self.post_update(of, self.record(of).len(), fleet)?;
        }
        match self.transactions[usize::from(tx)].under_way {
            0 => Ok(self.end(tx, Outcome::Committed(Timestamp::default()))),
            _ => Ok(News::Nothing),
        }
    }

    fn unlock(&mut self, tx: u16, fleet: &mut impl Fleet) -> Result<News, Broken> {
        self.transactions[usize::from(tx)].phase = Phase::Unlocking;
        for of in self.entries_of(tx) {
            if self.entries[of as usize].step == Step::Locked {
                self.set_out(tx, of, Step::Locked);
                self.post_unlock(of, fleet)?;
            }
        }
        match self.transactions[usize::from(tx)].under_way {
            0 => Ok(self.end(tx, Outcome::Aborted)),
            _ => Ok(News::Nothing),
        }
    }
}
