//! The four CASes by which a slot moves to the next table.
//!
//! Each of them fails if the slot is not in the expected state, and otherwise changes the slot irrevocably.
//! So any number of movers may try, even long after the others are done.

use remora_nic::prism::{Address, Mode, Number, Operand, Operands, Operation, WorkRequest};
use remora_nic::{Flags, Remote, Sge};

use super::chain::{SIGNALED, request};
use super::slot::{FROZEN, MOVED, RESERVED, SLOT, TableSlot};
use crate::{Broken, PostPrism};

const GENERATION: Number = [0, 0, u64::MAX, 0];

/// The ids of a mover's requests, and the memory for their results.
#[derive(Copy, Clone, Debug)]
pub(super) struct SwapIds {
    /// Id of the request that brings a completion.
    pub id: u64,
    /// Id of requests that bring none.
    pub quiet: u64,
    /// Memory to which the CAS returns the previous slot.
    pub old: Sge,
}

/// Returns the CAS that replaces the bits `mask` of a slot if the slot has this generation.
fn swap(slot: Remote, generation: u64, new: Number, mask: Number) -> Operation<'static> {
    let operands = Operands {
        mode: Mode::Equal,
        size: SLOT as u8,
        compare_mask: GENERATION,
        swap_mask: mask,
        compare: Operand::Immediate([0, 0, generation, 0]),
        swap_add: Operand::Immediate(new),
    };
    Operation::CompareSwap { at: Address::direct(slot), operands }
}

impl SwapIds {
    fn post(
        self,
        id: u64,
        flags: Flags,
        swap: Operation<'_>,
        nic: &mut impl PostPrism,
    ) -> Result<(), Broken> {
        Ok(nic.post_prism(&WorkRequest { result: Some(self.old), flags, ..request(id, swap) })?)
    }

    fn ask(self, swap: Operation<'_>, nic: &mut impl PostPrism) -> Result<(), Broken> {
        self.post(self.id, SIGNALED, swap, nic)
    }

    /// Binds a free slot of the next table to a hash.
    pub(crate) fn reserve(self, slot: Remote, hash: u64, nic: &mut impl PostPrism) -> Result<(), Broken> {
        let bound = TableSlot::bare(slot.addr, RESERVED, hash);
        self.ask(swap(slot, 0, bound.number(), [u64::MAX; 4]), nic)
    }

    /// Freezes the object in a slot, so that it no longer changes. The next table must already have a slot
    /// for its hash.
    pub(crate) fn freeze(
        self,
        slot: Remote,
        generation: u64,
        nic: &mut impl PostPrism,
    ) -> Result<(), Broken> {
        self.ask(swap(slot, generation, [0, 0, generation | FROZEN, 0], GENERATION), nic)
    }

    /// Copies a frozen object to its reserved slot, then marks the frozen slot as moved. Each step does
    /// nothing if it was done before. The first is executed before the second.
    pub(crate) fn hand_over(
        self,
        source: Remote,
        frozen: &TableSlot,
        target: Remote,
        nic: &mut impl PostPrism,
    ) -> Result<(), Broken> {
        let thawed = TableSlot { generation: frozen.generation & !FROZEN, ..*frozen };
        let fill = swap(target, RESERVED, thawed.number(), [u64::MAX; 4]);
        self.post(self.quiet, Flags::default(), fill, nic)?;
        self.give_up(source, frozen, nic)
    }

    /// Marks a slot as moved that points to no object, or whose object is in the next table.
    pub(crate) fn give_up(
        self,
        slot: Remote,
        words: &TableSlot,
        nic: &mut impl PostPrism,
    ) -> Result<(), Broken> {
        let moved = TableSlot::bare(slot.addr, MOVED, words.hash);
        self.ask(swap(slot, words.generation, moved.number(), [u64::MAX; 4]), nic)
    }
}
