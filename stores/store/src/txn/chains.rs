//! The work requests of PRISM-TX: the requests of each step of a transaction to a shard's NIC.

use remora_nic::prism::{Address, Data, Mode, Operand, Operands, Operation, SCRATCH, WorkRequest};
use remora_nic::{Flags, Payload, Remote, Sge};

use super::client::Client;
use super::client_config::Rules;
use super::layout::{Cell, Header, MARKS, SLOT, Slot, VersionRef};
use super::timestamp::{STATE, Timestamp, TxState};
use super::transaction::{Change, Entry};
use super::work::{Work, id};
use crate::{Broken, Connections, PostPrism};

/// Offsets in a key's results of the old slot, the buffer's address and a cell.
pub(crate) const OLD: usize = 0;
pub(crate) const TAKEN: usize = 32;
pub(crate) const CELL: usize = 40;

const ALL: u64 = u64::MAX;

fn request(work: Work, number: u32, operation: Operation<'_>) -> WorkRequest<'_> {
    let flags = Flags { signaled: true, ..Flags::default() };
    WorkRequest { id: id(work, number), operation, conditional: false, redirect: None, result: None, flags }
}

/// Returns the request without completion.
fn quietly(request: WorkRequest<'_>) -> WorkRequest<'_> {
    WorkRequest { flags: Flags { signaled: false, ..request.flags }, ..request }
}

/// Returns the operands of a compare-and-swap that changes nothing. Its result is the target at the moment
/// of execution.
fn observe(size: u8) -> Operands {
    Operands {
        mode: Mode::Equal,
        size,
        compare_mask: [0; 4],
        swap_mask: [0; 4],
        compare: Operand::Immediate([0; 4]),
        swap_add: Operand::Immediate([0; 4]),
    }
}

impl Client {
    fn remote(&self, shard: u16, addr: u64) -> Remote {
        Remote { addr, rkey: self.grants[usize::from(shard)].slots.rkey }
    }

    /// Returns the address of the slot in which a key is looked for.
    fn slot(&self, entry: &Entry) -> u64 {
        let grant = &self.grants[usize::from(entry.shard)];
        grant.slots.addr + grant.place(entry.hash, entry.further) * SLOT
    }

    fn cell(&self, cell: Cell) -> u64 {
        self.grants[usize::from(cell.shard)].cells + u64::from(cell.index) * 8
    }

    fn result(&self, entry_index: u32, offset: usize, len: usize) -> Sge {
        self.arena.sge(self.config.entry_at(entry_index) + offset, len)
    }

    /// Posts a READ of a key's latest version.
    pub(super) fn post_look(
        &mut self,
        entry_index: u32,
        connections: &mut impl Connections,
    ) -> Result<(), Broken> {
        let entry = &self.window.entries[entry_index as usize];
        // A transaction that only writes the key needs to read no more than the version's key.
        let len = if entry.reads { self.config.longest() } else { super::HEADER + entry.key_len as usize };
        let from = Address::bounded(self.remote(entry.shard, self.slot(entry)));
        let into = [self.arena.sge(self.config.landing_at(entry_index), len)];
        let look = request(Work::Look, entry_index, Operation::Read { from, len: len as u32, into: &into });
        Ok(connections.endpoint(entry.shard.into()).post_prism(&look)?)
    }

    /// Posts the validation of a read: PR becomes the transaction's time, if the version that was read is
    /// the latest and committed.
    pub(super) fn post_validate(
        &mut self,
        entry_index: u32,
        timestamp: Timestamp,
        connections: &mut impl Connections,
    ) -> Result<(), Broken> {
        let entry = &self.window.entries[entry_index as usize];
        let operands = Operands {
            mode: Mode::Greater,
            size: 16,
            compare_mask: [ALL, ALL, 0, 0],
            swap_mask: [ALL, 0, 0, 0],
            compare: Operand::Immediate([timestamp.word(), entry.latest.version.word(), 0, 0]),
            swap_add: Operand::Immediate([timestamp.word(), 0, 0, 0]),
        };
        let marks = Address::direct(self.remote(entry.shard, self.slot(entry) + MARKS));
        let swap = request(Work::Validate, entry_index, Operation::CompareSwap { at: marks, operands });
        // For a key that is also written, the CAS that links the new version returns the old slot.
        let result = entry.change.is_none().then(|| self.result(entry_index, OLD, 16));
        Ok(connections.endpoint(entry.shard.into()).post_prism(&WorkRequest { result, ..swap })?)
    }

    /// Composes the key's new version in the arena. Returns its length in bytes.
    fn compose(&self, entry_index: u32, timestamp: Timestamp, tx_state: TxState, cell: Cell) -> u64 {
        let entry = &self.window.entries[entry_index as usize];
        let header = Header {
            own: 0,
            version: timestamp,
            tx_state,
            before: entry.latest,
            cell,
            key_len: Some(entry.key_len),
            value_len: match entry.change {
                Some(Change::Value(len)) => Some(len),
                _ => None,
            },
        };
        self.arena.write(self.config.outgoing_at(entry_index), &header.emit());
        header.bound()
    }

    /// Posts the chain that allocates a buffer for the new version and links it into the slot. The version
    /// that was read must still be the latest one, committed, and read by no later transaction. In a
    /// one-step commit the new version is committed at once.
    pub(super) fn post_prepare(
        &mut self,
        entry_index: u32,
        one_step: bool,
        timestamp: Timestamp,
        cell: Cell,
        connections: &mut impl Connections,
    ) -> Result<(), Broken> {
        let tx_state = if one_step { TxState::Committed } else { TxState::Pending };
        let bound = self.compose(entry_index, timestamp, tx_state, cell);
        let entry = &self.window.entries[entry_index as usize];
        let grant = &self.grants[usize::from(entry.shard)];
        let rkey = grant.slots.rkey;
        let scratch = |offset: u64| Remote { addr: SCRATCH + offset, rkey };
        let words: [u64; 3] = [bound, 0, timestamp.word()];
        let mut rest = [0; 24];
        rest.chunks_exact_mut(8).zip(words).for_each(|(out, word)| out.copy_from_slice(&word.to_le_bytes()));
        let rest = Data::Local(Payload::Inline(&rest));
        let rest = Operation::Write { to: Address::direct(scratch(8)), data: rest };
        let class = grant.classes.for_len(bound).ok_or(Broken::Protocol)?;
        let bytes = [self.arena.sge(self.config.outgoing_at(entry_index), bound as usize)];
        let data = Data::Local(Payload::Sges(&bytes));
        let allocate = Operation::Allocate { list: grant.classes.all()[class].list, rkey, data };
        let allocate = quietly(request(Work::Prepare, entry_index, allocate));
        let result = Some(self.result(entry_index, TAKEN, 8));
        // `conditional` sends this operation together with those whose execution depends on the WRITE
        // before.
        let allocate = WorkRequest { conditional: true, redirect: Some(SCRATCH), result, ..allocate };
        let slot = Address::direct(self.remote(entry.shard, self.slot(entry)));
        let operands = self.prepare_operands(entry, timestamp);
        let swap = request(Work::Prepare, entry_index, Operation::CompareSwap { at: slot, operands });
        let swap = WorkRequest { conditional: true, result: Some(self.result(entry_index, OLD, 32)), ..swap };
        // A version must contain its own address if later writers of the same slot are to find it.
        let own = Operation::Write {
            to: Address::indirect(scratch(0)),
            data: Data::There { addr: SCRATCH, len: 8 },
        };
        let own = WorkRequest { conditional: true, ..quietly(request(Work::Prepare, entry_index, own)) };
        let mut end = connections.endpoint(entry.shard.into());
        end.post_prism(&quietly(request(Work::Prepare, entry_index, rest)))?;
        end.post_prism(&allocate)?;
        if one_step && self.several {
            end.post_prism(&own)?;
        }
        Ok(end.post_prism(&swap)?)
    }

    /// Returns the operands of the CAS that links a version: PW|PR must not exceed the version read and the
    /// transaction's time; then PW, address and bound are replaced.
    fn prepare_operands(&self, entry: &Entry, timestamp: Timestamp) -> Operands {
        let (mode, compare_mask, compare) = match self.config.rules {
            Rules::PrintedAbort if !entry.reads => {
                (Mode::Greater, [0, 0, 0, ALL], [0, 0, 0, timestamp.word()])
            }
            rules => {
                let strict = rules == Rules::PrintedStrict;
                let mode = if strict { Mode::Greater } else { Mode::GreaterEqual };
                (mode, [0, 0, ALL, ALL], [0, 0, timestamp.word(), entry.latest.version.word()])
            }
        };
        Operands {
            mode,
            size: 32,
            compare_mask,
            swap_mask: [ALL, ALL, 0, ALL],
            compare: Operand::Immediate(compare),
            swap_add: Operand::At(SCRATCH),
        }
    }

    /// Posts a CAS of a decision cell. The first decision counts: a later CAS for the same transaction only
    /// reads it.
    pub(super) fn post_cell(
        &mut self,
        work: Work,
        number: u32,
        cell: Cell,
        timestamp: Timestamp,
        tx_state: TxState,
        result: Sge,
        connections: &mut impl Connections,
    ) -> Result<(), Broken> {
        let operands = Operands {
            mode: Mode::Greater,
            size: 8,
            compare_mask: [!STATE, 0, 0, 0],
            swap_mask: [ALL, 0, 0, 0],
            compare: Operand::Immediate([timestamp.word(), 0, 0, 0]),
            swap_add: Operand::Immediate([timestamp.is(tx_state), 0, 0, 0]),
        };
        let place = Address::direct(self.remote(cell.shard, self.cell(cell)));
        let swap = request(work, number, Operation::CompareSwap { at: place, operands });
        let swap = WorkRequest { result: Some(result), ..swap };
        Ok(connections.endpoint(cell.shard.into()).post_prism(&swap)?)
    }

    /// Posts the change of the pending version of this time, in the buffer at `addr`, to committed. The
    /// version also gets its own address.
    pub(super) fn post_flip(
        &mut self,
        work: Work,
        entry_index: u32,
        addr: u64,
        timestamp: Timestamp,
        conditional: bool,
        connections: &mut impl Connections,
    ) -> Result<(), Broken> {
        let operands = Operands {
            mode: Mode::Equal,
            size: 16,
            compare_mask: [0, ALL, 0, 0],
            swap_mask: [ALL, ALL, 0, 0],
            compare: Operand::Immediate([0, timestamp.is(TxState::Pending), 0, 0]),
            swap_add: Operand::Immediate([addr, timestamp.is(TxState::Committed), 0, 0]),
        };
        let shard = self.window.entries[entry_index as usize].shard;
        let place = Address::direct(self.remote(shard, addr));
        let swap = request(work, entry_index, Operation::CompareSwap { at: place, operands });
        Ok(connections.endpoint(shard.into()).post_prism(&WorkRequest { conditional, ..swap })?)
    }

    /// Posts the CAS that makes a slot point to the previous version again, if it points to the version of
    /// this time.
    pub(super) fn post_undo(
        &mut self,
        work: Work,
        entry_index: u32,
        timestamp: Timestamp,
        before: VersionRef,
        connections: &mut impl Connections,
    ) -> Result<(), Broken> {
        let entry = &self.window.entries[entry_index as usize];
        let back = Slot { latest: before, read: Timestamp::default() };
        let operands = Operands {
            mode: Mode::Equal,
            size: 32,
            compare_mask: [0, 0, 0, ALL],
            swap_mask: [ALL, ALL, 0, ALL],
            compare: Operand::Immediate([0, 0, 0, timestamp.word()]),
            swap_add: Operand::Immediate(back.words()),
        };
        let slot = Address::direct(self.remote(entry.shard, self.slot(entry)));
        let swap = request(work, entry_index, Operation::CompareSwap { at: slot, operands });
        Ok(connections.endpoint(entry.shard.into()).post_prism(&swap)?)
    }

    /// Posts an atomic read of a key's slot. A plain READ could return parts of two states.
    pub(super) fn post_snapshot(
        &mut self,
        work: Work,
        entry_index: u32,
        connections: &mut impl Connections,
    ) -> Result<(), Broken> {
        let entry = &self.window.entries[entry_index as usize];
        let slot = Address::direct(self.remote(entry.shard, self.slot(entry)));
        let read = request(work, entry_index, Operation::CompareSwap { at: slot, operands: observe(32) });
        let read = WorkRequest { result: Some(self.result(entry_index, OLD, 32)), ..read };
        Ok(connections.endpoint(entry.shard.into()).post_prism(&read)?)
    }
}
