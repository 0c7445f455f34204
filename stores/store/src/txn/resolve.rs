//! A pending version in the way: the client waits for it, and in the end asks its transaction's cell and
//! repairs the key.

use remora_nic::WorkCompletion;
use remora_nic::prism::Outcome as PrismOutcome;

use super::chains::{CELL, OLD};
use super::client::{Client, News};
use super::layout::{Header, Slot};
use super::timestamp::{Timestamp, TxState};
use super::transaction::{Phase, Step};
use super::work::Work;
use crate::{Broken, Connections};

impl Client {
    /// Reads a key again whose latest version is pending. After so many reads it asks the transaction's cell.
    pub(super) fn held_up(
        &mut self,
        tx: u16,
        of: u32,
        mark: Header,
        connections: &mut impl Connections,
    ) -> Result<News, Broken> {
        let entry = &mut self.window.entries[of as usize];
        entry.looks += 1;
        if entry.looks <= self.config.patience || !self.may_mend(of) {
            self.look(tx, of, connections)?;
            return Ok(News::Nothing);
        }
        let entry = &mut self.window.entries[of as usize];
        (entry.looks, entry.mark) = (0, Some(mark));
        let (cell, at) = (mark.cell, mark.version);
        let grant = self.grants.get(usize::from(cell.shard)).ok_or(Broken::Protocol)?;
        if cell.index >= grant.sessions.saturating_mul(grant.window) {
            return Err(Broken::Protocol);
        }
        self.set_out(tx, of, Step::Asking(2), 2);
        // Undecided means aborted from now on. If another client decided before, the cell has its decision.
        let result = self.arena.sge(self.config.entry_at(of) + CELL, 8);
        self.post_cell(Work::Ask, of, cell, at, TxState::Aborted, result, connections)?;
        self.post_snapshot(Work::Snapshot, of, connections)?;
        Ok(News::Nothing)
    }

    /// Does the buffer that a repair gives back fit, beside those of all transactions?
    fn may_mend(&self, of: u32) -> bool {
        let shard = usize::from(self.window.entries[of as usize].shard);
        self.returns[shard].space() > self.config.most_returns() / 4 * 2
    }

    /// One of two answers is here: the cell, the slot. With both it is known what to do.
    pub(super) fn asked(
        &mut self,
        tx: u16,
        of: u32,
        connections: &mut impl Connections,
    ) -> Result<News, Broken> {
        let entry = &mut self.window.entries[of as usize];
        if entry.step == Step::Asking(2) {
            entry.step = Step::Asking(1);
            return Ok(News::Nothing);
        }
        let mark = entry.mark.filter(|_| entry.step == Step::Asking(1)).ok_or(Broken::Protocol)?;
        self.count_trip(tx, of);
        if let Phase::Dropping(_) = self.window.transactions[usize::from(tx)].phase {
            return Ok(self.drop_if_quiet(tx));
        }
        let base = self.config.entry_at(of);
        let slot = self.slot_seen(of);
        let cell = self.arena_word(base + CELL);
        let decided = Timestamp::of(cell);
        if slot.latest.version != mark.version || decided > mark.version {
            // Another client was quicker.
            self.look(tx, of, connections)?;
            return Ok(News::Nothing);
        }
        // A word from before its time was no decision, and this client has just made it one.
        let committed = decided == mark.version && TxState::of(cell) == Some(TxState::Committed);
        self.set_out(tx, of, Step::Mending(committed), 1);
        let entry = &mut self.window.entries[of as usize];
        entry.found = slot.latest;
        match committed {
            true => self.post_flip(Work::Mend, of, slot.latest.addr, mark.version, false, connections)?,
            false => self.post_undo(Work::Mend, of, mark.version, mark.before, connections)?,
        }
        Ok(News::Nothing)
    }

    /// The pending version is committed or out, by this client or by another.
    pub(super) fn mended(
        &mut self,
        tx: u16,
        of: u32,
        completion: &WorkCompletion,
        connections: &mut impl Connections,
    ) -> Result<News, Broken> {
        self.count_trip(tx, of);
        let entry = &self.window.entries[of as usize];
        let (Step::Mending(committed), Some(mark)) = (entry.step, entry.mark) else {
            return Err(Broken::Protocol);
        };
        if completion.outcome == PrismOutcome::Done {
            // A client that takes a buffer out of the table gives it back.
            let (shard, out) = (entry.shard, if committed { mark.before.addr } else { entry.found.addr });
            self.give(shard, out);
            self.window.transactions[usize::from(tx)].resolved += 1;
        }
        if let Phase::Dropping(_) = self.window.transactions[usize::from(tx)].phase {
            return Ok(self.drop_if_quiet(tx));
        }
        self.look(tx, of, connections)?;
        Ok(News::Nothing)
    }

    /// A key's slot, as it came.
    pub(super) fn slot_seen(&self, of: u32) -> Slot {
        let base = self.config.entry_at(of) + OLD;
        Slot::of(std::array::from_fn(|at| self.arena_word(base + 8 * at)))
    }

    /// A buffer goes back to its shard, if it is one that was allocated.
    pub(super) fn give(&mut self, shard: u16, addr: u64) {
        let shard = usize::from(shard);
        if self.grants[shard].classes.find(addr).is_some() {
            self.returns[shard].give(addr);
        }
    }

    pub(super) fn arena_word(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        self.arena.read(at, &mut bytes);
        u64::from_le_bytes(bytes)
    }
}
