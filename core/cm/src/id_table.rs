//! The table of ids: slots, and the communication ids by which peers name them.

use std::collections::VecDeque;

use remora_memory::permute;

use crate::CmState;
use crate::cm_id::CmId;
use crate::index::Index;

/// Maximum number of ids in a table.
const MAX_IDS: u32 = 1 << 16;

/// The slots of all ids.
///
/// Communication ids are a keyed permutation of the numbers from 1 on. An id therefore cannot be predicted
/// from earlier ids, and none is issued a second time before 2^32 others. A slot that becomes free goes to
/// the end of the queue of free slots.
#[derive(Debug)]
pub(crate) struct IdTable {
    ids: Vec<CmId>,
    free: VecDeque<u32>,
    by_comm_id: Index<u32>,
    /// Number of communication ids tried so far, modulo 2^32.
    issued: u32,
    seed: u64,
}

impl IdTable {
    /// Creates a table of `max` free slots.
    pub(crate) fn new(max: u32, seed: u64) -> IdTable {
        assert!(max > 0 && max <= MAX_IDS, "1 to {MAX_IDS} ids");
        let ids = vec![CmId::IDLE; max as usize];
        let by_comm_id = Index::new(max as usize);
        IdTable { ids, free: (0..max).collect(), by_comm_id, issued: 0, seed }
    }

    /// Allocates the slot that has been free for longest, and assigns it a communication id. `None` if no
    /// slot is free.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let slot = self.free.pop_front()?;
        let local_comm_id = loop {
            self.issued = self.issued.wrapping_add(1);
            let id = permute(self.issued, u32::BITS, self.seed);
            // 0 is not valid as a communication id: messages without an id carry it.
            if id != 0 && self.by_comm_id.insert(id, slot) {
                break id;
            }
        };
        self.ids[slot as usize] = CmId { local_comm_id, ..CmId::IDLE };
        Some(slot)
    }

    /// Frees a slot.
    pub(crate) fn give_back(&mut self, slot: u32) {
        let id = &mut self.ids[slot as usize];
        self.by_comm_id.remove(&id.local_comm_id);
        *id = CmId::IDLE;
        self.free.push_back(slot);
    }

    /// Returns the slot of a communication id; `None` if no id has it.
    pub(crate) fn find(&self, local_comm_id: u32) -> Option<u32> {
        self.by_comm_id.get(&local_comm_id)
    }

    /// Returns the id in a slot.
    pub(crate) fn get(&self, slot: u32) -> &CmId {
        &self.ids[slot as usize]
    }

    /// Returns the id in a slot, mutably.
    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut CmId {
        &mut self.ids[slot as usize]
    }

    /// Returns whether all slots are in use.
    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Returns the number of slots in use.
    pub(crate) fn len(&self) -> usize {
        self.ids.len() - self.free.len()
    }

    /// Iterates over the ids in use, with their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &CmId)> {
        (0..).zip(&self.ids).filter(|(_, id)| id.state != CmState::Idle)
    }

    /// Iterates over the ids in use.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut CmId> {
        self.ids.iter_mut().filter(|id| id.state != CmState::Idle)
    }

    /// Asserts that each slot is either in use or free.
    pub(crate) fn check(&self) {
        assert_eq!(self.iter().count(), self.len(), "slots in use are not free");
        assert_eq!(self.by_comm_id.len(), self.len(), "each id in use has a communication id");
        self.by_comm_id.check();
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
        for _ in 0..20_000 {
            let [slot, id] = take(&mut table).unwrap();
            assert!(id != 0 && seen.insert(id), "{id:#x} came again");
            assert_eq!(table.find(id), Some(slot));
            table.give_back(slot);
            assert_eq!(table.find(id), None, "an id that ended");
        }
        table.check();
    }

    /// Regression: communication ids were a counter and a slot under one XOR. A client that had
    /// connected once could compute the ids of others, and 504 forged DREQs ended a stranger's
    /// connection.
    #[test]
    fn communication_ids_do_not_follow_from_those_before() {
        let mut table = IdTable::new(200, 9);
        let ids: Vec<u32> = (0..200).map(|_| take(&mut table).unwrap()[1]).collect();
        for change in [u32::wrapping_sub, |a: u32, b: u32| a ^ b] {
            let changes: BTreeSet<u32> = ids.windows(2).map(|pair| change(pair[1], pair[0])).collect();
            assert!(changes.len() > 195, "only {} different steps", changes.len());
            let near = changes.iter().filter(|change| **change < 1 << 16).count();
            assert!(near < 5, "{near} of 199 ids are near the one before");
        }
        let mut other = IdTable::new(200, 10);
        let same = ids.iter().filter(|id| **id == take(&mut other).unwrap()[1]).count();
        assert_eq!(same, 0, "another seed gives other ids");
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
