//! The commit of PRISM-TX: prepare, decide, and mark the versions as committed.

use remora_nic::WorkCompletion;
use remora_nic::prism::Verdict as PrismOutcome;

use super::chains::{OLD, TAKEN};
use super::client::{Client, News};
use super::client_config::Rules;
use super::layout::{Cell, Slot};
use super::timestamp::{Timestamp, TxState};
use super::transaction::{Entry, Outcome, Phase, Step};
use super::work::Work;
use crate::{Broken, Connections};

impl Client {
    /// Prepares the transaction once all keys are found.
    pub(super) fn advance(&mut self, tx: u16, connections: &mut impl Connections) -> Result<News, Broken> {
        let mut clash = None;
        let mut writes = 0;
        let mut reads = 0;
        for entry_index in self.window.entries_of(tx) {
            let entry = &self.window.entries[entry_index as usize];
            match entry.step {
                Step::Found if entry.change.is_some() => writes += 1,
                Step::Found => reads += u32::from(entry.reads && !self.is_covered(tx, entry_index)),
                // No slot in which the key may lie holds it or is free, so the key is absent for good.
                Step::NoSlot if entry.change.is_none() => {}
                Step::NoSlot => return Ok(self.fail(tx, Outcome::TableFull)),
                _ => return Ok(News::Nothing),
            }
            if entry.change.is_some() && entry.fresh && self.is_covered(tx, entry_index) {
                clash = Some(entry_index);
            }
        }
        if let Some(entry_index) = clash {
            // Two new keys have the same free slot, so the later one takes the next slot.
            return self.look_further(tx, entry_index, connections);
        }
        if writes == 0 && reads <= 1 {
            // A single version of a single key was current at some time: right after it was written.
            let timestamp = self.stamp(tx);
            self.release(tx);
            return Ok(News::Ended(tx, Outcome::Committed(timestamp)));
        }
        let strict = self.config.rules == Rules::PrintedStrict;
        let one_step = self.config.one_step && writes == 1 && reads == 0 && !strict;
        if !one_step && self.locate(tx, connections)? {
            return Ok(News::Nothing);
        }
        self.prepare(tx, one_step, connections)?;
        match self.window.transactions[usize::from(tx)].under_way {
            // The rules that check nothing have nothing to wait for.
            0 => self.prepared(tx, connections),
            _ => Ok(News::Nothing),
        }
    }

    /// Looks up the addresses of the versions that the pending writes replace, so that an abort can restore
    /// them. Returns false if all addresses are known.
    fn locate(&mut self, tx: u16, connections: &mut impl Connections) -> Result<bool, Broken> {
        for entry_index in self.window.entries_of(tx) {
            let entry = &self.window.entries[entry_index as usize];
            if entry.change.is_some() && entry.latest.addr == 0 {
                self.set_out(tx, entry_index, Step::Locating, 1);
                self.post_snapshot(Work::Locate, entry_index, connections)?;
            }
        }
        Ok(self.window.transactions[usize::from(tx)].under_way > 0)
    }

    /// Processes a slot that was read for its address. The address counts if the slot still points to the
    /// version that was found.
    pub(super) fn located(
        &mut self,
        tx: u16,
        entry_index: u32,
        connections: &mut impl Connections,
    ) -> Result<News, Broken> {
        self.count_trip(tx, entry_index);
        if let Phase::Dropping(_) = self.window.transactions[usize::from(tx)].phase {
            return Ok(self.drop_if_quiet(tx));
        }
        let Slot { latest, read } = self.slot_seen(entry_index);
        let entry = &mut self.window.entries[entry_index as usize];
        if latest.version != entry.latest.version {
            self.last = self.last.max(latest.version).max(read);
            return Ok(self.fail(tx, Outcome::Aborted));
        }
        (entry.latest.addr, entry.step) = (latest.addr, Step::Found);
        self.advance(tx, connections)
    }

    /// Returns true if an earlier key that the transaction writes is in the same slot. For a key that is
    /// only read, any other written key counts.
    fn is_covered(&self, tx: u16, entry_index: u32) -> bool {
        let this = &self.window.entries[entry_index as usize];
        let place = |entry: &Entry| {
            (entry.shard, self.grants[usize::from(entry.shard)].place(entry.hash, entry.further))
        };
        self.window
            .entries_of(tx)
            .filter(|other| *other < entry_index || this.change.is_none() && *other != entry_index)
            .any(|other| {
                let other = &self.window.entries[other as usize];
                // If the other key has another version, the read of this key is out of date.
                let same = this.change.is_some() || other.latest.version == this.latest.version;
                other.change.is_some() && other.step != Step::NoSlot && same && place(other) == place(this)
            })
    }

    fn prepare(&mut self, tx: u16, one_step: bool, connections: &mut impl Connections) -> Result<(), Broken> {
        let rules = self.config.rules;
        let timestamp = self.stamp(tx);
        let strict = rules == Rules::PrintedStrict;
        let written = self
            .window
            .entries_of(tx)
            .find(|entry_index| self.window.entries[*entry_index as usize].change.is_some());
        let home = written.map_or(0, |entry_index| self.window.entries[entry_index as usize].shard);
        self.several |= !one_step && written.is_some();
        let transaction = &mut self.window.transactions[usize::from(tx)];
        (transaction.phase, transaction.one_step, transaction.home) = (Phase::Preparing, one_step, home);
        let cell = self.own_cell(tx);
        for entry_index in self.window.entries_of(tx) {
            let Entry { change, reads, step, .. } = self.window.entries[entry_index as usize];
            if change.is_some() {
                if strict && reads {
                    self.post_validate(entry_index, timestamp, connections)?;
                    self.window.transactions[usize::from(tx)].under_way += 1;
                }
                self.set_out(tx, entry_index, Step::Preparing, 1);
                self.post_prepare(entry_index, one_step, timestamp, cell, connections)?;
            } else if step == Step::Found
                && !self.is_covered(tx, entry_index)
                && rules != Rules::ReadsUnchecked
            {
                self.set_out(tx, entry_index, Step::Preparing, 1);
                self.post_validate(entry_index, timestamp, connections)?;
            }
        }
        Ok(())
    }

    fn own_cell(&self, tx: u16) -> Cell {
        let shard = self.window.transactions[usize::from(tx)].home;
        let grant = &self.grants[usize::from(shard)];
        Cell { shard, index: self.grants[0].session * grant.window + u32::from(tx) }
    }

    /// Processes a completion of a commit.
    pub(super) fn answered(
        &mut self,
        tx: u16,
        work: Work,
        number: u32,
        completion: &WorkCompletion,
        connections: &mut impl Connections,
    ) -> Result<News, Broken> {
        let verdict = completion.outcome;
        match work {
            Work::Validate => self.validated(tx, number, verdict),
            Work::Prepare => self.linked(tx, number, verdict),
            Work::Decide => {
                let news = self.decided(tx, verdict);
                return self.proceed(tx, news, connections);
            }
            Work::Flip => self.flipped(number, verdict),
            Work::Undo => self.undone(number, verdict),
            _ => return Err(Broken::Protocol),
        }
        self.proceed(tx, News::Nothing, connections)
    }

    /// Processes the validation of a read. The read is valid if its version is still the latest; a later
    /// reader does not matter.
    fn validated(&mut self, tx: u16, entry_index: u32, verdict: PrismOutcome) {
        let base = self.config.entry_at(entry_index) + OLD;
        let read = self.arena_word(base);
        let written = self.arena_word(base + 8);
        self.count_trip(tx, entry_index);
        let entry = &mut self.window.entries[entry_index as usize];
        if entry.change.is_some() {
            // By the printed rules, the validation of a key that is also written either succeeds at once or
            // fails for good.
            self.window.transactions[usize::from(tx)].lost |= verdict != PrismOutcome::Done;
            return;
        }
        let stands = verdict == PrismOutcome::Done || entry.latest.version.word() == written;
        entry.step = if stands { Step::Validated } else { Step::Refused };
        self.last = self.last.max(Timestamp::of(written)).max(Timestamp::of(if stands { 0 } else { read }));
    }

    fn linked(&mut self, tx: u16, entry_index: u32, verdict: PrismOutcome) {
        let base = self.config.entry_at(entry_index) + OLD;
        let read = self.arena_word(base + 16);
        let written = self.arena_word(base + 24);
        let before = self.arena_word(base);
        let taken = self.arena_word(self.config.entry_at(entry_index) + TAKEN);
        self.count_trip(tx, entry_index);
        let transaction = &mut self.window.transactions[usize::from(tx)];
        let entry = &mut self.window.entries[entry_index as usize];
        entry.step = match verdict {
            PrismOutcome::Done => Step::Linked(taken),
            PrismOutcome::NotSwapped => Step::Refused,
            _ => Step::NoBuffer,
        };
        if verdict == PrismOutcome::Done && entry.latest.addr == 0 {
            // The slot has returned the address of a version that did not contain its own.
            entry.latest.addr = before;
        }
        // The printed rules check PR only now. The other rules have checked it, so nothing is lost here for
        // them.
        transaction.lost |= Timestamp::of(read) > transaction.timestamp;
        if verdict == PrismOutcome::NotSwapped {
            // The next attempt needs a later timestamp than those that this one lost against.
            self.last = self.last.max(Timestamp::of(read)).max(Timestamp::of(written));
            self.give(self.window.entries[entry_index as usize].shard, taken);
        }
    }

    /// Processes the decision cell's result.
    fn decided(&mut self, tx: u16, verdict: PrismOutcome) -> News {
        let transaction = &mut self.window.transactions[usize::from(tx)];
        transaction.trips += 1;
        if verdict == PrismOutcome::Done {
            transaction.phase = Phase::Finishing;
            return News::Ended(tx, Outcome::Committed(transaction.timestamp));
        }
        // Another client waited too long and aborted the transaction.
        transaction.phase = Phase::Undoing(Outcome::Aborted);
        News::Nothing
    }

    /// Processes the marking of a version as committed, by this client or another.
    fn flipped(&mut self, entry_index: u32, verdict: PrismOutcome) {
        if verdict == PrismOutcome::Skipped {
            return;
        }
        let entry = &mut self.window.entries[entry_index as usize];
        entry.step = Step::Settled;
        let shard = entry.shard;
        let before = entry.latest.addr;
        if verdict == PrismOutcome::Done && self.config.rules != Rules::PrintedAbort {
            self.give(shard, before);
        }
    }

    fn undone(&mut self, entry_index: u32, verdict: PrismOutcome) {
        let entry = &mut self.window.entries[entry_index as usize];
        let shard = entry.shard;
        let step = std::mem::replace(&mut entry.step, Step::Settled);
        if let (Step::Linked(addr), PrismOutcome::Done) = (step, verdict) {
            self.give(shard, addr);
        }
    }

    /// Starts the next round when all answers of a round have arrived.
    fn proceed(&mut self, tx: u16, news: News, connections: &mut impl Connections) -> Result<News, Broken> {
        if self.window.transactions[usize::from(tx)].under_way > 0 {
            return Ok(news);
        }
        match self.window.transactions[usize::from(tx)].phase {
            Phase::Preparing => self.prepared(tx, connections),
            Phase::Finishing => {
                if self.flip_all(tx, None, connections)? == 0 {
                    self.release(tx);
                }
                Ok(news)
            }
            Phase::Undoing(outcome) => self.undo(tx, outcome, connections),
            _ => Err(Broken::Protocol),
        }
    }

    fn prepared(&mut self, tx: u16, connections: &mut impl Connections) -> Result<News, Broken> {
        let step = |entry_index: u32| self.window.entries[entry_index as usize].step;
        let lost = self.window.transactions[usize::from(tx)].lost
            || self.window.entries_of(tx).any(|entry_index| step(entry_index) == Step::Refused);
        let short = self.window.entries_of(tx).any(|entry_index| step(entry_index) == Step::NoBuffer);
        if lost || short {
            return self.undo(tx, if short { Outcome::NoBuffer } else { Outcome::Aborted }, connections);
        }
        let timestamp = self.window.transactions[usize::from(tx)].timestamp;
        let linked = |entry_index: &u32| matches!(step(*entry_index), Step::Linked(_));
        let first = self.window.entries_of(tx).find(linked);
        let Some(first) = first.filter(|_| !self.window.transactions[usize::from(tx)].one_step) else {
            if let Some(entry_index) = first {
                self.flipped(entry_index, PrismOutcome::Done);
            }
            self.release(tx);
            return Ok(News::Ended(tx, Outcome::Committed(timestamp)));
        };
        let cell = self.own_cell(tx);
        debug_assert_eq!(
            self.window.entries[first as usize].shard, cell.shard,
            "the first written key's shard"
        );
        let transaction = &mut self.window.transactions[usize::from(tx)];
        transaction.phase = Phase::Deciding;
        transaction.under_way += 1;
        let result = self.arena.sge(self.config.tx_at(tx), 8);
        self.post_cell(Work::Decide, tx.into(), cell, timestamp, TxState::Committed, result, connections)?;
        self.flip_all(tx, Some(cell.shard), connections)?;
        Ok(News::Nothing)
    }

    /// Marks versions as committed: those at shard `home` conditionally, as soon as the cell is decided, or
    /// all remaining ones. Returns the number of requests.
    fn flip_all(
        &mut self,
        tx: u16,
        home: Option<u16>,
        connections: &mut impl Connections,
    ) -> Result<u32, Broken> {
        let timestamp = self.window.transactions[usize::from(tx)].timestamp;
        let mut count = 0;
        for entry_index in self.window.entries_of(tx) {
            let entry = &self.window.entries[entry_index as usize];
            if let (Step::Linked(addr), true) = (entry.step, home.is_none_or(|home| home == entry.shard)) {
                self.window.transactions[usize::from(tx)].under_way += 1;
                self.post_flip(Work::Flip, entry_index, addr, timestamp, home.is_some(), connections)?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Removes pending versions. Ends the transaction when none is left.
    fn undo(
        &mut self,
        tx: u16,
        outcome: Outcome,
        connections: &mut impl Connections,
    ) -> Result<News, Broken> {
        let transaction = &mut self.window.transactions[usize::from(tx)];
        transaction.phase = Phase::Undoing(outcome);
        let timestamp = transaction.timestamp;
        let mut count = 0;
        for entry_index in self.window.entries_of(tx) {
            let Entry { step, latest, .. } = self.window.entries[entry_index as usize];
            if let Step::Linked(_) = step {
                self.window.transactions[usize::from(tx)].under_way += 1;
                self.post_undo(Work::Undo, entry_index, timestamp, latest, connections)?;
                count += 1;
            }
        }
        if count > 0 {
            return Ok(News::Nothing);
        }
        self.release(tx);
        Ok(News::Ended(tx, outcome))
    }
}
