//! The work requests: what each step of a transaction asks a shard's NIC for.

use nic::{Flags, Operation, Payload, Remote, Sge, WorkRequest};

use super::client::Client;
use super::layout::{LOG_FRONT, WORD, Word, log_stride, next, record_len, stride};
use crate::{Broken, Fleet, Post};

/// What an operation was for; its completion says so.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Work {
    /// A key's slot.
    Look = 1,
    /// The lock of a key that is written.
    Lock,
    /// The word of a key that was only read.
    Validate,
    /// A key gets its new value, and is unlocked.
    Update,
    /// A lock is given back.
    Unlock,
}

const WORKS: [Work; 5] = [Work::Look, Work::Lock, Work::Validate, Work::Update, Work::Unlock];

fn id(work: Work, of: u32) -> u64 {
    (work as u64) << 40 | u64::from(of)
}

/// What an id says; None if it is none of ours.
pub fn parse_id(id: u64) -> Option<(Work, u32)> {
    let work = WORKS.into_iter().find(|work| *work as u64 == id >> 40)?;
    Some((work, id as u32))
}

impl Client {
    /// The number of the slot that a key is looked for in.
    pub(super) fn slot(&self, of: u32) -> u64 {
        let entry = &self.entries[of as usize];
        (entry.hash + u64::from(entry.further)) % self.grants[usize::from(entry.shard)].slot_count
    }

    fn remote(&self, of: u32, addr: u64) -> Remote {
        Remote { addr, rkey: self.grants[usize::from(self.entries[of as usize].shard)].slots.rkey }
    }

    fn slot_addr(&self, of: u32) -> u64 {
        let grant = &self.grants[usize::from(self.entries[of as usize].shard)];
        grant.slots.addr + self.slot(of) * stride(grant.room) as u64
    }

    fn post(
        &self,
        (work, of): (Work, u32),
        operation: Operation,
        sge: Sge,
        signaled: bool,
        fleet: &mut impl Fleet,
    ) -> Result<(), Broken> {
        let flags = Flags { signaled, ..Flags::default() };
        let payload = Payload::Sges(&[sge]);
        let shard = self.entries[of as usize].shard.into();
        Ok(fleet.end(shard).post_send(&WorkRequest { id: id(work, of), operation, payload, flags })?)
    }

    fn result(&self, of: u32) -> Sge {
        self.arena.sge(self.config.entry_at(of, self.room), 8)
    }

    /// READs the slot that a key is looked for in.
    pub(super) fn post_look(&self, of: u32, fleet: &mut impl Fleet) -> Result<(), Broken> {
        let room = self.grants[usize::from(self.entries[of as usize].shard)].room;
        let into = self.arena.sge(self.config.landing_at(of, self.room), WORD + record_len(room));
        let from = self.remote(of, self.slot_addr(of));
        self.post((Work::Look, of), Operation::Read(from), into, true, fleet)
    }

    /// READs the word of a key that was only read.
    pub(super) fn post_validate(&self, of: u32, fleet: &mut impl Fleet) -> Result<(), Broken> {
        let from = self.remote(of, self.slot_addr(of));
        self.post((Work::Validate, of), Operation::Read(from), self.result(of), true, fleet)
    }

    /// The lock of a key, as this client takes it.
    pub(super) fn lock(&self, of: u32) -> Word {
        let entry = &self.entries[of as usize];
        Word::locked(entry.version, self.grants[usize::from(entry.shard)].holder, of)
    }

    /// The log entry, and behind it the compare-and-swap of the word from the version that was found to the lock.
    pub(super) fn post_lock(&self, of: u32, len: usize, fleet: &mut impl Fleet) -> Result<(), Broken> {
        let entry = &self.entries[of as usize];
        let grant = &self.grants[usize::from(entry.shard)];
        let log = self.remote(of, grant.log + u64::from(of) * log_stride(grant.room) as u64);
        let bytes = self.arena.sge(self.config.outgoing_at(of, self.room), LOG_FRONT + len);
        self.post((Work::Lock, of), Operation::Write(log), bytes, false, fleet)?;
        let remote = self.remote(of, self.slot_addr(of));
        let (compare, swap) = (Word::free(entry.version).pack(), self.lock(of).pack());
        let swap = Operation::CompareSwap { remote, compare, swap };
        self.post((Work::Lock, of), swap, self.result(of), true, fleet)
    }

    /// Says at a key's shard that its transaction writes now.
    pub(super) fn post_mark(&self, of: u32, fleet: &mut impl Fleet) -> Result<(), Broken> {
        let grant = &self.grants[usize::from(self.entries[of as usize].shard)];
        let mark = self.remote(of, grant.marks + u64::from(of / self.config.max_keys) * 8);
        // The log entry begins with the transaction's number.
        let number = self.arena.sge(self.config.outgoing_at(of, self.room), 8);
        self.post((Work::Update, of), Operation::Write(mark), number, false, fleet)
    }

    /// Writes the record, and unlocks the key with its next version. An atomic is executed after all that was posted before it, over IRN, too.
    pub(super) fn post_update(&self, of: u32, len: usize, fleet: &mut impl Fleet) -> Result<(), Broken> {
        let record = self.remote(of, self.slot_addr(of) + WORD as u64);
        let bytes = self.arena.sge(self.config.outgoing_at(of, self.room) + LOG_FRONT, len);
        self.post((Work::Update, of), Operation::Write(record), bytes, false, fleet)?;
        self.post_word((Work::Update, of), next(self.entries[of as usize].version), fleet)
    }

    /// Gives a lock back.
    pub(super) fn post_unlock(&self, of: u32, fleet: &mut impl Fleet) -> Result<(), Broken> {
        self.post_word((Work::Unlock, of), self.entries[of as usize].version, fleet)
    }

    fn post_word(&self, what: (Work, u32), version: u64, fleet: &mut impl Fleet) -> Result<(), Broken> {
        let remote = self.remote(what.1, self.slot_addr(what.1));
        let (compare, swap) = (self.lock(what.1).pack(), Word::free(version).pack());
        let swap = Operation::CompareSwap { remote, compare, swap };
        self.post(what, swap, self.result(what.1), true, fleet)
    }
}
