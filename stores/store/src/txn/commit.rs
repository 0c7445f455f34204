//! The commit: prepare, decide, and say so to the versions.

use remora_nic::WorkCompletion;
use remora_nic::prism::Outcome as Verdict;

use super::chains::{OLD, TAKEN, Work};
use super::client::{Client, News};
use super::client_config::Rules;
use super::layout::{Cell, Slot};
use super::timestamp::{Fate, Timestamp};
use super::transaction::{Entry, Outcome, Phase, Step};
use crate::{Broken, Fleet};

impl Client {
    /// All keys are to be found; then the transaction is prepared.
    pub(super) fn advance(&mut self, tx: u16, fleet: &mut impl Fleet) -> Result<News, Broken> {
        let mut clash = None;
        let (mut writes, mut reads) = (0, 0);
        for of in self.entries_of(tx) {
            let entry = &self.entries[of as usize];
            match entry.step {
                Step::Found if entry.change.is_some() => writes += 1,
                Step::Found => reads += u32::from(entry.reads && !self.is_covered(tx, of)),
                // No slot that it could be in holds it or is free: it is absent for ever.
                Step::NoSlot if entry.change.is_none() => {}
                Step::NoSlot => return Ok(self.fail(tx, Outcome::TableFull)),
                _ => return Ok(News::Nothing),
            }
            if entry.change.is_some() && entry.fresh && self.is_covered(tx, of) {
                clash = Some(of);
            }
        }
        if let Some(of) = clash {
            // Two new keys want one slot: the later one goes to the next.
            return self.look_further(tx, of, fleet);
        }
        if writes == 0 && reads <= 1 {
            // One version of one key is what was there at some time: the one right after it was written.
            let at = self.stamp(tx);
            self.release(tx);
            return Ok(News::Ended(tx, Outcome::Committed(at)));
        }
        let strict = self.config.rules == Rules::PrintedStrict;
        let one_step = self.config.one_step && writes == 1 && reads == 0 && !strict;
        if !one_step && self.locate(tx, fleet)? {
            return Ok(News::Nothing);
        }
        self.prepare((tx, one_step), fleet)?;
        match self.transactions[usize::from(tx)].under_way {
            // Rules that check nothing have nothing to wait for.
            0 => self.prepared(tx, fleet),
            _ => Ok(News::Nothing),
        }
    }

    /// Asks where the versions are that pending ones will be put in over: whoever takes those out must find them. False: all is known.
    fn locate(&mut self, tx: u16, fleet: &mut impl Fleet) -> Result<bool, Broken> {
        for of in self.entries_of(tx) {
            let entry = &self.entries[of as usize];
            if entry.change.is_some() && entry.found.addr == 0 {
                self.set_out(tx, of, Step::Locating, 1);
                self.post_snapshot((Work::Locate, of), fleet)?;
            }
        }
        Ok(self.transactions[usize::from(tx)].under_way > 0)
    }

    /// The slot says it, if it still leads to the version that was found.
    pub(super) fn located(&mut self, tx: u16, of: u32, fleet: &mut impl Fleet) -> Result<News, Broken> {
        self.count_trip(tx, of);
        if let Phase::Dropping(_) = self.transactions[usize::from(tx)].phase {
            return Ok(self.drop_if_quiet(tx));
        }
        let Slot { latest, read } = self.slot_seen(of);
        let entry = &mut self.entries[of as usize];
        if latest.version != entry.found.version {
            self.last = self.last.max(latest.version).max(read);
            return Ok(self.fail(tx, Outcome::Aborted));
        }
        (entry.found.addr, entry.step) = (latest.addr, Step::Found);
        self.advance(tx, fleet)
    }

    /// Does an earlier key that the transaction writes (or, for a key that is only read, any) stand in the same slot?
    fn is_covered(&self, tx: u16, of: u32) -> bool {
        let this = &self.entries[of as usize];
        let place = |entry: &Entry| {
            (entry.shard, self.grants[usize::from(entry.shard)].place(entry.hash, entry.further))
        };
        self.entries_of(tx).filter(|other| *other < of || this.change.is_none() && *other != of).any(
            |other| {
                let other = &self.entries[other as usize];
                // Of another version, what was read here is no longer so.
                let same = this.change.is_some() || other.found.version == this.found.version;
                other.change.is_some() && other.step != Step::NoSlot && same && place(other) == place(this)
            },
        )
    }

    fn prepare(&mut self, (tx, one_step): (u16, bool), fleet: &mut impl Fleet) -> Result<(), Broken> {
        let (rules, at) = (self.config.rules, self.stamp(tx));
        let strict = rules == Rules::PrintedStrict;
        let written = self.entries_of(tx).find(|of| self.entries[*of as usize].change.is_some());
        let home = written.map_or(0, |of| self.entries[of as usize].shard);
        self.several |= !one_step && written.is_some();
        let transaction = &mut self.transactions[usize::from(tx)];
        (transaction.phase, transaction.one_step, transaction.home) = (Phase::Preparing, one_step, home);
        let cell = self.own_cell(tx);
        for of in self.entries_of(tx) {
            let Entry { change, reads, step, .. } = self.entries[of as usize];
            if change.is_some() {
                if strict && reads {
                    self.post_validate(of, at, fleet)?;
                    self.transactions[usize::from(tx)].under_way += 1;
                }
                self.set_out(tx, of, Step::Preparing, 1);
                self.post_prepare((of, one_step), at, cell, fleet)?;
            } else if step == Step::Found && !self.is_covered(tx, of) && rules != Rules::ReadsUnchecked {
                self.set_out(tx, of, Step::Preparing, 1);
                self.post_validate(of, at, fleet)?;
            }
        }
        Ok(())
    }

    fn own_cell(&self, tx: u16) -> Cell {
        let shard = self.transactions[usize::from(tx)].home;
        let grant = &self.grants[usize::from(shard)];
        Cell { shard, index: self.grants[0].session * grant.window + u32::from(tx) }
    }

    /// A completion of a commit.
    pub(super) fn answered(
        &mut self,
        tx: u16,
        (work, of): (Work, u32),
        completion: &WorkCompletion,
        fleet: &mut impl Fleet,
    ) -> Result<News, Broken> {
        let verdict = Verdict::from_number(completion.outcome).ok_or(Broken::Protocol)?;
        match work {
            Work::Validate => self.validated(tx, of, verdict),
            Work::Prepare => self.linked(tx, of, verdict),
            Work::Decide => {
                let news = self.decided(tx, verdict);
                return self.go_on(tx, news, fleet);
            }
            Work::Flip => self.flipped(of, verdict),
            Work::Undo => self.undone(of, verdict),
            _ => return Err(Broken::Protocol),
        }
        self.go_on(tx, News::Nothing, fleet)
    }

    /// A read stands if the version is still the latest; that somebody later has read it is no matter.
    fn validated(&mut self, tx: u16, of: u32, verdict: Verdict) {
        let base = self.config.entry_at(of) + OLD;
        let (read, written) = (self.arena_word(base), self.arena_word(base + 8));
        self.count_trip(tx, of);
        let entry = &mut self.entries[of as usize];
        if entry.change.is_some() {
            // As printed, by the rules that validate what is also written: at once, or not at all.
            self.transactions[usize::from(tx)].lost |= verdict != Verdict::Done;
            return;
        }
        let stands = verdict == Verdict::Done || entry.found.version.word() == written;
        entry.step = if stands { Step::Validated } else { Step::Refused };
        self.last = self.last.max(Timestamp::of(written)).max(Timestamp::of(if stands { 0 } else { read }));
    }

    fn linked(&mut self, tx: u16, of: u32, verdict: Verdict) {
        let base = self.config.entry_at(of) + OLD;
        let (read, written) = (self.arena_word(base + 16), self.arena_word(base + 24));
        let (before, taken) = (self.arena_word(base), self.arena_word(self.config.entry_at(of) + TAKEN));
        self.count_trip(tx, of);
        let transaction = &mut self.transactions[usize::from(tx)];
        let entry = &mut self.entries[of as usize];
        entry.step = match verdict {
            Verdict::Done => Step::Linked(taken),
            Verdict::NotSwapped => Step::Refused,
            _ => Step::NoBuffer,
        };
        if verdict == Verdict::Done && entry.found.addr == 0 {
            // Of a version that did not know it, the slot has just told the address.
            entry.found.addr = before;
        }
        // The printed rules look at PR afterwards; the others have done so, and lose nothing here.
        transaction.lost |= Timestamp::of(read) > transaction.at;
        if verdict == Verdict::NotSwapped {
            // The next attempt is later than what this one lost against.
            self.last = self.last.max(Timestamp::of(read)).max(Timestamp::of(written));
            self.give(self.entries[of as usize].shard, taken);
        }
    }

    /// The cell has its word.
    fn decided(&mut self, tx: u16, verdict: Verdict) -> News {
        let transaction = &mut self.transactions[usize::from(tx)];
        transaction.trips += 1;
        if verdict == Verdict::Done {
            transaction.phase = Phase::Finishing;
            return News::Ended(tx, Outcome::Committed(transaction.at));
        }
        // Somebody had waited too long.
        transaction.phase = Phase::Undoing(Outcome::Aborted);
        News::Nothing
    }

    /// A version says that it is committed; if not by this client, then by another.
    fn flipped(&mut self, of: u32, verdict: Verdict) {
        if verdict == Verdict::Skipped {
            return;
        }
        let entry = &mut self.entries[of as usize];
        entry.step = Step::Settled;
        let (shard, before) = (entry.shard, entry.found.addr);
        if verdict == Verdict::Done && self.config.rules != Rules::PrintedAbort {
            self.give(shard, before);
        }
    }

    fn undone(&mut self, of: u32, verdict: Verdict) {
        let entry = &mut self.entries[of as usize];
        let (shard, step) = (entry.shard, std::mem::replace(&mut entry.step, Step::Settled));
        if let (Step::Linked(addr), Verdict::Done) = (step, verdict) {
            self.give(shard, addr);
        }
    }

    /// When all answers of a round are here, the next begins.
    fn go_on(&mut self, tx: u16, news: News, fleet: &mut impl Fleet) -> Result<News, Broken> {
        if self.transactions[usize::from(tx)].under_way > 0 {
            return Ok(news);
        }
        match self.transactions[usize::from(tx)].phase {
            Phase::Preparing => self.prepared(tx, fleet),
            Phase::Finishing => {
                if self.flip_all(tx, None, fleet)? == 0 {
                    self.release(tx);
                }
                Ok(news)
            }
            Phase::Undoing(outcome) => self.undo(tx, outcome, fleet),
            _ => Err(Broken::Protocol),
        }
    }

    fn prepared(&mut self, tx: u16, fleet: &mut impl Fleet) -> Result<News, Broken> {
        let step = |of: u32| self.entries[of as usize].step;
        let lost = self.transactions[usize::from(tx)].lost
            || self.entries_of(tx).any(|of| step(of) == Step::Refused);
        let short = self.entries_of(tx).any(|of| step(of) == Step::NoBuffer);
        if lost || short {
            return self.undo(tx, if short { Outcome::NoBuffer } else { Outcome::Aborted }, fleet);
        }
        let at = self.transactions[usize::from(tx)].at;
        let linked = |of: &u32| matches!(step(*of), Step::Linked(_));
        let first = self.entries_of(tx).find(linked);
        let Some(first) = first.filter(|_| !self.transactions[usize::from(tx)].one_step) else {
            if let Some(of) = first {
                self.flipped(of, Verdict::Done);
            }
            self.release(tx);
            return Ok(News::Ended(tx, Outcome::Committed(at)));
        };
        let cell = self.own_cell(tx);
        debug_assert_eq!(self.entries[first as usize].shard, cell.shard, "the first written key's shard");
        let transaction = &mut self.transactions[usize::from(tx)];
        transaction.phase = Phase::Deciding;
        transaction.under_way += 1;
        let result = self.arena.sge(self.config.tx_at(tx), 8);
        self.post_cell((Work::Decide, tx.into()), (cell, at, Fate::Committed), result, fleet)?;
        self.flip_all(tx, Some(cell.shard), fleet)?;
        Ok(News::Nothing)
    }

    /// Says to versions that they are committed: to those at home if, and as soon as, the cell says so; or to all that are left. How many.
    fn flip_all(&mut self, tx: u16, home: Option<u16>, fleet: &mut impl Fleet) -> Result<u32, Broken> {
        let at = self.transactions[usize::from(tx)].at;
        let mut count = 0;
        for of in self.entries_of(tx) {
            let entry = &self.entries[of as usize];
            if let (Step::Linked(addr), true) = (entry.step, home.is_none_or(|home| home == entry.shard)) {
                self.transactions[usize::from(tx)].under_way += 1;
                self.post_flip((Work::Flip, of), (addr, at), home.is_some(), fleet)?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Takes pending versions out; ends the transaction when none is left.
    fn undo(&mut self, tx: u16, outcome: Outcome, fleet: &mut impl Fleet) -> Result<News, Broken> {
        let transaction = &mut self.transactions[usize::from(tx)];
        transaction.phase = Phase::Undoing(outcome);
        let (at, mut count) = (transaction.at, 0);
        for of in self.entries_of(tx) {
            let Entry { step, found, .. } = self.entries[of as usize];
            if let Step::Linked(_) = step {
                self.transactions[usize::from(tx)].under_way += 1;
                self.post_undo((Work::Undo, of), (at, found), fleet)?;
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
