//! The table of ids: slots, and the communication ids by which peers name them.

use std::collections::VecDeque;

use crate::CmState;
use crate::cm_id::CmId;

/// Bits of a communication id that are the slot; the others count its uses.
const SLOT_BITS: u32 = 16;
const SLOT: u32 = (1 << SLOT_BITS) - 1;

/// The slots of all ids.
///
/// A communication id is a slot and how often it was used. Both are mixed with the seed, so that two managers
/// begin elsewhere. A slot that becomes free goes to the end of the line. So an id comes again after all
/// slots were used 65,536 times, unless most are in use for good.
#[derive(Debug)]
pub(crate) struct IdTable {
    ids: Vec<CmId>,
    uses: Vec<u16>,
    free: VecDeque<u32>,
    seed: u32,
}

impl IdTable {
    /// With `max` slots, all free.
    pub fn new(max: u32, seed: u32) -> IdTable {
        assert!(max > 0 && max <= 1 << SLOT_BITS, "1 to 65,536 ids");
        let free: VecDeque<u32> = (0..max).collect();
        IdTable { ids: vec![CmId::IDLE; max as usize], uses: vec![0; max as usize], free, seed }
    }

    /// Takes a slot that has waited longest. Its id has a communication id and nothing else.
    pub fn take(&mut self) -> Option<u32> {
        let slot = self.free.pop_front()?;
        // 0 is the id of those that have none.
        let named = std::iter::repeat_with(|| {
            let uses = &mut self.uses[slot as usize];
            *uses = uses.wrapping_add(1);
            (u32::from(*uses) << SLOT_BITS | slot) ^ self.seed
        });
        let local_comm_id = named.take(2).find(|id| *id != 0)?;
        self.ids[slot as usize] = CmId { local_comm_id, ..CmId::IDLE };
        Some(slot)
    }

    /// Gives a slot back.
    pub fn give_back(&mut self, slot: u32) {
        self.ids[slot as usize] = CmId::IDLE;
        self.free.push_back(slot);
    }

    /// The slot that has this communication id now.
    pub fn find(&self, local_comm_id: u32) -> Option<u32> {
        let slot = (local_comm_id ^ self.seed) & SLOT;
        let id = self.ids.get(slot as usize)?;
        (id.state != CmState::Idle && id.local_comm_id == local_comm_id).then_some(slot)
    }

    /// The id of a slot.
    pub fn get(&self, slot: u32) -> &CmId {
        &self.ids[slot as usize]
    }

    /// The id of a slot.
    pub fn get_mut(&mut self, slot: u32) -> &mut CmId {
        &mut self.ids[slot as usize]
    }

    /// Are all slots in use?
    pub fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// How many slots are in use.
    pub fn len(&self) -> usize {
        self.ids.len() - self.free.len()
    }

    /// The ids in use, with their slots.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &CmId)> {
        (0..).zip(&self.ids).filter(|(_, id)| id.state != CmState::Idle)
    }

    /// The ids in use.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut CmId> {
        self.ids.iter_mut().filter(|id| id.state != CmState::Idle)
    }

    /// Asserts that each slot is in use or free.
    pub fn check(&self) {
        assert_eq!(self.iter().count(), self.len(), "slots in use are not free");
        assert!(self.free.iter().all(|slot| self.get(*slot).state == CmState::Idle), "free slots are idle");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn take(table: &mut IdTable) -> Option<[u32; 2]> {
        let slot = table.take()?;
        table.get_mut(slot).state = CmState::ReqSent;
        Some([slot, table.get(slot).local_comm_id])
    }

    #[test]
    fn a_communication_id_does_not_come_again_at_once() {
        let mut table = IdTable::new(4, 0x1234_5678);
        let mut seen = BTreeSet::new();
        for _ in 0..4 * 65_535 {
            let [slot, id] = take(&mut table).unwrap();
            assert!(id != 0 && seen.insert(id), "{id:#x} came again");
            assert_eq!(table.find(id), Some(slot));
            table.give_back(slot);
            assert_eq!(table.find(id), None, "an id that ended");
        }
        table.check();
    }

    #[test]
    fn no_communication_id_is_zero_whatever_the_seed() {
        for seed in [0, 1 << 16, 0xffff_0000, u32::MAX] {
            let mut table = IdTable::new(1, seed);
            for _ in 0..2 * 65_536 {
                let [slot, id] = take(&mut table).unwrap();
                assert_ne!(id, 0);
                table.give_back(slot);
            }
        }
    }

    #[test]
    fn there_are_as_many_ids_as_slots() {
        let mut table = IdTable::new(3, 7);
        for _ in 0..3 {
            assert!(!table.is_full());
            take(&mut table).unwrap();
        }
        assert!(table.is_full() && take(&mut table).is_none());
        assert_eq!((table.len(), table.find(0xdead_beef)), (3, None));
        table.check();
    }
}
