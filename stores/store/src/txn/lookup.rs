//! The lookup of a key's latest committed version: from the slot that its hash selects onwards, one indirect
//! bounded READ a slot.

use remora_nic::WorkCompletion;

use super::client::{Client, News};
use super::layout::{HEADER, Header, VersionRef};
use super::timestamp::TxState;
use super::transaction::{Outcome, Phase, Step};
use super::work::Work;
use crate::{Broken, Connections};

impl Client {
    /// A completion of a transaction's work.
    pub(super) fn progress(
        &mut self,
        work: Work,
        of: u32,
        completion: &WorkCompletion,
        connections: &mut impl Connections,
    ) -> Result<News, Broken> {
        let tx = if work == Work::Decide { of } else { of / self.config.max_keys };
        let transaction = self.window.transactions.get_mut(tx as usize).ok_or(Broken::Protocol)?;
        transaction.under_way = transaction.under_way.checked_sub(1).ok_or(Broken::Protocol)?;
        let tx = tx as u16;
        match work {
            Work::Look => self.landed(tx, of, completion.byte_len, connections),
            Work::Ask | Work::Snapshot => self.asked(tx, of, connections),
            Work::Locate => self.located(tx, of, connections),
            Work::Mend => self.mended(tx, of, completion, connections),
            _ => self.answered(tx, work, of, completion, connections),
        }
    }

    /// READs the slot that a key is looked for in.
    pub(super) fn look(
        &mut self,
        tx: u16,
        of: u32,
        connections: &mut impl Connections,
    ) -> Result<(), Broken> {
        self.set_out(tx, of, Step::Looking, 1);
        self.post_look(of, connections)
    }

    /// Something begins for a key, with so many completions.
    pub(super) fn set_out(&mut self, tx: u16, of: u32, step: Step, completions: u32) {
        let transaction = &mut self.window.transactions[usize::from(tx)];
        transaction.under_way += completions;
        let entry = &mut self.window.entries[of as usize];
        (entry.step, entry.since) = (step, transaction.trips);
    }

    /// It has ended: the transaction has waited so many round trips at least.
    pub(super) fn count_trip(&mut self, tx: u16, of: u32) {
        let since = self.window.entries[of as usize].since;
        let trips = &mut self.window.transactions[usize::from(tx)].trips;
        *trips = (*trips).max(since + 1);
    }

    /// The version that a slot points to has been read.
    fn landed(
        &mut self,
        tx: u16,
        of: u32,
        len: u32,
        connections: &mut impl Connections,
    ) -> Result<News, Broken> {
        self.count_trip(tx, of);
        if let Phase::Dropping(_) = self.window.transactions[usize::from(tx)].phase {
            return Ok(self.drop_if_quiet(tx));
        }
        let mut bytes = [0; HEADER];
        self.arena.read(self.config.landing_at(of), &mut bytes);
        let header = Header::parse(&bytes).filter(|_| len as usize >= HEADER).ok_or(Broken::Protocol)?;
        let same = self.is_key(of, &header, len);
        if header.tx_state == TxState::Pending {
            // A slot whose key stays after the decision on this version is passed. One that may become free
            // is not.
            let stays = header.before.version != Default::default();
            if !same && stays {
                return self.look_further(tx, of, connections);
            }
            return self.held_up(tx, of, header, connections);
        }
        if header.key_len.is_some() && !same {
            return self.look_further(tx, of, connections);
        }
        let closing = self.window.transactions[usize::from(tx)].phase == Phase::Closing;
        let entry = &mut self.window.entries[of as usize];
        // Notice that it is absent, the program has wanted to commit; another new key has its slot, and it
        // has come meanwhile.
        if closing && entry.reads && !entry.asked && entry.value_len.is_none() && header.value_len.is_some() {
            return Ok(self.fail(tx, Outcome::Aborted));
        }
        entry.found = VersionRef { addr: header.own, bound: header.bound(), version: header.version };
        (entry.value_len, entry.fresh, entry.step) =
            (header.value_len, header.key_len.is_none(), Step::Found);
        if entry.reads && header.bound() > u64::from(len) {
            if header.bound() > self.config.longest() as u64 {
                return Ok(self.fail(tx, Outcome::TooLong));
            }
            // It was looked for without its value when the program asked for that, too.
            self.look(tx, of, connections)?;
            return Ok(News::Nothing);
        }
        self.found(tx, of, connections)
    }

    /// Is it the key's buffer?
    fn is_key(&mut self, of: u32, header: &Header, len: u32) -> bool {
        let entry = &self.window.entries[of as usize];
        if header.key_len != Some(entry.key_len) || (len as usize) < HEADER + entry.key_len as usize {
            return false;
        }
        let there = self.config.landing_at(of) + HEADER;
        let mut scratch = std::mem::take(&mut self.scratch);
        let bytes = &mut scratch[..self.window.entries[of as usize].key_len as usize];
        self.arena.read(there, bytes);
        let same = *bytes == *self.window.key(of);
        self.scratch = scratch;
        same
    }

    /// The next slot; when it has gone as far as keys may lie, the key is nowhere.
    pub(super) fn look_further(
        &mut self,
        tx: u16,
        of: u32,
        connections: &mut impl Connections,
    ) -> Result<News, Broken> {
        let entry = &mut self.window.entries[of as usize];
        (entry.further, entry.looks) = (entry.further + 1, 0);
        if entry.further < self.grants[usize::from(entry.shard)].reach {
            self.look(tx, of, connections)?;
            return Ok(News::Nothing);
        }
        (entry.step, entry.value_len) = (Step::NoSlot, None);
        self.found(tx, of, connections)
    }

    /// A key was found, or its absence was.
    fn found(&mut self, tx: u16, of: u32, connections: &mut impl Connections) -> Result<News, Broken> {
        if std::mem::take(&mut self.window.entries[of as usize].asked)
            && self.window.transactions[usize::from(tx)].phase == Phase::Open
        {
            return Ok(News::Read(of));
        }
        match self.window.transactions[usize::from(tx)].phase {
            Phase::Closing => self.advance(tx, connections),
            _ => Ok(News::Nothing),
        }
    }

    /// A transaction cannot continue: it ends when all its requests have completed.
    pub(super) fn fail(&mut self, tx: u16, outcome: Outcome) -> News {
        self.window.transactions[usize::from(tx)].phase = Phase::Dropping(outcome);
        self.drop_if_quiet(tx)
    }

    /// Ends a transaction that was given up before it was prepared.
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
