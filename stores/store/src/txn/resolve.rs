//! The resolution of a pending version that is in the way. The client waits for it, and finally reads its
//! transaction's decision cell and repairs the key.

use remora_nic::WorkCompletion;
use remora_nic::prism::Verdict as PrismOutcome;

use super::chains::{CELL, OLD};
use super::client::{Client, News};
use super::layout::{Header, Slot};
use super::timestamp::{Timestamp, TxState};
use super::transaction::{Phase, Step};
use super::work::Work;
use crate::{Broken, Connections};

impl Client {
    /// Reads a key again whose latest version is pending. After a number of reads it asks the transaction's
    /// cell.
    pub(super) fn held_up(
        &mut self,
        tx: u16,
        entry_index: u32,
        mark: Header,
        connections: &mut impl Connections,
    ) -> Result<News, Broken> {
        let entry = &mut self.window.entries[entry_index as usize];
        entry.looks += 1;
        if entry.looks <= self.config.patience || !self.may_mend(entry_index) {
            self.look(tx, entry_index, connections)?;
            return Ok(News::Nothing);
        }
        let entry = &mut self.window.entries[entry_index as usize];
        (entry.looks, entry.mark) = (0, Some(mark));
        let cell = mark.cell;
        let timestamp = mark.version;
        let grant = self.grants.get(usize::from(cell.shard)).ok_or(Broken::Protocol)?;
        if cell.index >= grant.sessions.saturating_mul(grant.window) {
            return Err(Broken::Protocol);
        }
        self.set_out(tx, entry_index, Step::Asking(2), 2);
        // An undecided transaction is aborted by this request. If it was decided before, the cell keeps that
        // decision.
        let result = self.arena.sge(self.config.entry_at(entry_index) + CELL, 8);
        self.post_cell(Work::Ask, entry_index, cell, timestamp, TxState::Aborted, result, connections)?;
        self.post_snapshot(Work::Snapshot, entry_index, connections)?;
        Ok(News::Nothing)
    }

    /// Returns true if there is space to return the buffer of a repair, in addition to those of all
    /// transactions.
    fn may_mend(&self, entry_index: u32) -> bool {
        let shard = usize::from(self.window.entries[entry_index as usize].shard);
        self.returns[shard].space() > self.config.most_returns() / 4 * 2
    }

    /// Processes one of two answers: the cell, or the slot. The repair starts when both have arrived.
    pub(super) fn asked(
        &mut self,
        tx: u16,
        entry_index: u32,
        connections: &mut impl Connections,
    ) -> Result<News, Broken> {
        let entry = &mut self.window.entries[entry_index as usize];
        if entry.step == Step::Asking(2) {
            entry.step = Step::Asking(1);
            return Ok(News::Nothing);
        }
        let mark = entry.mark.filter(|_| entry.step == Step::Asking(1)).ok_or(Broken::Protocol)?;
        self.count_trip(tx, entry_index);
        if let Phase::Dropping(_) = self.window.transactions[usize::from(tx)].phase {
            return Ok(self.drop_if_quiet(tx));
        }
        let base = self.config.entry_at(entry_index);
        let slot = self.slot_seen(entry_index);
        let cell = self.arena_word(base + CELL);
        let decided = Timestamp::of(cell);
        if slot.latest.version != mark.version || decided > mark.version {
            // Another client has repaired the key already.
            self.look(tx, entry_index, connections)?;
            return Ok(News::Nothing);
        }
        // A cell with an earlier timestamp contained no decision, so this client's request has aborted the
        // transaction.
        let committed = decided == mark.version && TxState::of(cell) == Some(TxState::Committed);
        self.set_out(tx, entry_index, Step::Mending(committed), 1);
        let entry = &mut self.window.entries[entry_index as usize];
        entry.latest = slot.latest;
        match committed {
            true => {
                self.post_flip(Work::Mend, entry_index, slot.latest.addr, mark.version, false, connections)?
            }
            false => self.post_undo(Work::Mend, entry_index, mark.version, mark.before, connections)?,
        }
        Ok(News::Nothing)
    }

    /// Processes the end of a repair: the pending version is committed or removed, by this client or
    /// another.
    pub(super) fn mended(
        &mut self,
        tx: u16,
        entry_index: u32,
        completion: &WorkCompletion,
        connections: &mut impl Connections,
    ) -> Result<News, Broken> {
        self.count_trip(tx, entry_index);
        let entry = &self.window.entries[entry_index as usize];
        let (Step::Mending(committed), Some(mark)) = (entry.step, entry.mark) else {
            return Err(Broken::Protocol);
        };
        if completion.outcome == PrismOutcome::Done {
            // The client that removes a buffer from the table must return it.
            let shard = entry.shard;
            let out = if committed { mark.before.addr } else { entry.latest.addr };
            self.give(shard, out);
            self.window.transactions[usize::from(tx)].resolved += 1;
        }
        if let Phase::Dropping(_) = self.window.transactions[usize::from(tx)].phase {
            return Ok(self.drop_if_quiet(tx));
        }
        self.look(tx, entry_index, connections)?;
        Ok(News::Nothing)
    }

    /// Returns a key's slot, as it was read.
    pub(super) fn slot_seen(&self, entry_index: u32) -> Slot {
        let base = self.config.entry_at(entry_index) + OLD;
        Slot::of(std::array::from_fn(|index| self.arena_word(base + 8 * index)))
    }

    /// Returns a buffer to its shard, if it is one that was allocated.
    pub(super) fn give(&mut self, shard: u16, addr: u64) {
        let shard = usize::from(shard);
        if self.grants[shard].classes.find(addr).is_some() {
            self.returns[shard].give(addr);
        }
    }

    pub(super) fn arena_word(&self, offset: usize) -> u64 {
        let mut bytes = [0; 8];
        self.arena.read(offset, &mut bytes);
        u64::from_le_bytes(bytes)
    }
}
