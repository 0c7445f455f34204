//! The lookup of a key's latest committed version: one indirect bounded READ per slot, starting at the key's
//! home slot.

use remora_nic::WorkCompletion;

use super::client::{Client, News};
use super::layout::{HEADER, Header, VersionRef};
use super::timestamp::TxState;
use super::transaction::{Outcome, Phase, Step};
use super::work::Work;
use crate::{Broken, Connections};

impl Client {
    /// Processes a completion of a transaction's request.
    pub(super) fn progress(
        &mut self,
        work: Work,
        number: u32,
        completion: &WorkCompletion,
        connections: &mut impl Connections,
    ) -> Result<News, Broken> {
        let tx = if work == Work::Decide { number } else { number / self.config.max_keys };
        let transaction = self.window.transactions.get_mut(tx as usize).ok_or(Broken::Protocol)?;
        transaction.under_way = transaction.under_way.checked_sub(1).ok_or(Broken::Protocol)?;
        let tx = tx as u16;
        match work {
            Work::Look => self.landed(tx, number, completion.byte_len, connections),
            Work::Ask | Work::Snapshot => self.asked(tx, number, connections),
            Work::Locate => self.located(tx, number, connections),
            Work::Mend => self.mended(tx, number, completion, connections),
            _ => self.answered(tx, work, number, completion, connections),
        }
    }

    /// Posts a READ through the slot in which a key is looked for.
    pub(super) fn look(
        &mut self,
        tx: u16,
        entry_index: u32,
        connections: &mut impl Connections,
    ) -> Result<(), Broken> {
        self.set_out(tx, entry_index, Step::Looking, 1);
        self.post_look(entry_index, connections)
    }

    /// Notes that an operation on a key begins, which brings `completions` completions.
    pub(super) fn set_out(&mut self, tx: u16, entry_index: u32, step: Step, completions: u32) {
        let transaction = &mut self.window.transactions[usize::from(tx)];
        transaction.under_way += completions;
        let entry = &mut self.window.entries[entry_index as usize];
        (entry.step, entry.since) = (step, transaction.trips);
    }

    /// Notes that an operation on a key has completed, and counts its round trip.
    pub(super) fn count_trip(&mut self, tx: u16, entry_index: u32) {
        let since = self.window.entries[entry_index as usize].since;
        let trips = &mut self.window.transactions[usize::from(tx)].trips;
        *trips = (*trips).max(since + 1);
    }

    /// Processes the version to which a slot points.
    fn landed(
        &mut self,
        tx: u16,
        entry_index: u32,
        len: u32,
        connections: &mut impl Connections,
    ) -> Result<News, Broken> {
        self.count_trip(tx, entry_index);
        if let Phase::Dropping(_) = self.window.transactions[usize::from(tx)].phase {
            return Ok(self.drop_if_quiet(tx));
        }
        let mut bytes = [0; HEADER];
        self.arena.read(self.config.landing_at(entry_index), &mut bytes);
        let header = Header::parse(&bytes).filter(|_| len as usize >= HEADER).ok_or(Broken::Protocol)?;
        let same = self.is_key(entry_index, &header, len);
        if header.tx_state == TxState::Pending {
            // If the slot will still hold another key after the decision on this version, the lookup passes
            // it. If the slot may become free, it does not.
            let stays = header.before.version != Default::default();
            if !same && stays {
                return self.look_further(tx, entry_index, connections);
            }
            return self.held_up(tx, entry_index, header, connections);
        }
        if header.key_len.is_some() && !same {
            return self.look_further(tx, entry_index, connections);
        }
        let closing = self.window.transactions[usize::from(tx)].phase == Phase::Closing;
        let entry = &mut self.window.entries[entry_index as usize];
        // The caller knows the key as absent and has requested the commit. Another new key took its slot,
        // and meanwhile this key was inserted.
        if closing && entry.reads && !entry.asked && entry.value_len.is_none() && header.value_len.is_some() {
            return Ok(self.fail(tx, Outcome::Aborted));
        }
        entry.latest = VersionRef { addr: header.own, bound: header.bound(), version: header.version };
        (entry.value_len, entry.fresh, entry.step) =
            (header.value_len, header.key_len.is_none(), Step::Found);
        if entry.reads && header.bound() > u64::from(len) {
            if header.bound() > self.config.longest() as u64 {
                return Ok(self.fail(tx, Outcome::TooLong));
            }
            // The key was looked up without its value before the caller asked for the value, too.
            self.look(tx, entry_index, connections)?;
            return Ok(News::Nothing);
        }
        self.found(tx, entry_index, connections)
    }

    /// Returns true if the buffer belongs to the key.
    fn is_key(&mut self, entry_index: u32, header: &Header, len: u32) -> bool {
        let entry = &self.window.entries[entry_index as usize];
        if header.key_len != Some(entry.key_len) || (len as usize) < HEADER + entry.key_len as usize {
            return false;
        }
        let there = self.config.landing_at(entry_index) + HEADER;
        let mut scratch = std::mem::take(&mut self.scratch);
        let bytes = &mut scratch[..self.window.entries[entry_index as usize].key_len as usize];
        self.arena.read(there, bytes);
        let same = *bytes == *self.window.key(entry_index);
        self.scratch = scratch;
        same
    }

    /// Continues at the next slot. At the maximum distance, the key is absent.
    pub(super) fn look_further(
        &mut self,
        tx: u16,
        entry_index: u32,
        connections: &mut impl Connections,
    ) -> Result<News, Broken> {
        let entry = &mut self.window.entries[entry_index as usize];
        (entry.further, entry.looks) = (entry.further + 1, 0);
        if entry.further < self.grants[usize::from(entry.shard)].reach {
            self.look(tx, entry_index, connections)?;
            return Ok(News::Nothing);
        }
        (entry.step, entry.value_len) = (Step::NoSlot, None);
        self.found(tx, entry_index, connections)
    }

    /// Continues a transaction after the lookup of a key has ended.
    fn found(
        &mut self,
        tx: u16,
        entry_index: u32,
        connections: &mut impl Connections,
    ) -> Result<News, Broken> {
        if std::mem::take(&mut self.window.entries[entry_index as usize].asked)
            && self.window.transactions[usize::from(tx)].phase == Phase::Open
        {
            return Ok(News::Read(entry_index));
        }
        match self.window.transactions[usize::from(tx)].phase {
            Phase::Closing => self.advance(tx, connections),
            _ => Ok(News::Nothing),
        }
    }

    /// Ends a transaction that cannot continue, once all its requests have completed.
    pub(super) fn fail(&mut self, tx: u16, outcome: Outcome) -> News {
        self.window.transactions[usize::from(tx)].phase = Phase::Dropping(outcome);
        self.drop_if_quiet(tx)
    }

    /// Ends a transaction that was given up before it was prepared, once all its requests have completed.
    pub(super) fn drop_if_quiet(&mut self, tx: u16) -> News {
        let transaction = &self.window.transactions[usize::from(tx)];
        match transaction.phase {
            Phase::Dropping(outcome) if transaction.under_way == 0 => {
                self.release(tx);
                News::Ended(tx, outcome)
            }
            _ => News::Nothing,
        }
    }
}
