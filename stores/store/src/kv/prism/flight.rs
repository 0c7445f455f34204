//! An operation in flight.

use super::slot::TableSlot;
use super::tables::Tables;
use crate::heap::Phase;
use crate::kv::Operation;

/// The activity of a place of the window.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Idle,
    /// The CAS waits until there is space to return the buffer that it may unlink.
    Waiting,
    /// A READ through a slot is under way.
    Reading,
    /// The chain or the CAS is under way.
    Swapping,
    /// The operation has passed the maximum number of slots in the newest known table, and reads whether a
    /// newer table exists.
    Asking,
    /// The operation moves the frozen object of a slot to the next table.
    Helping,
}

/// A slot that an operation has found frozen.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Frozen {
    /// Address of the slot.
    pub address: u64,
    /// The content of the slot, which does not change until the slot is moved.
    pub words: TableSlot,
}

/// A slot of the window.
#[derive(Copy, Clone, Debug)]
pub(super) struct Flight {
    pub state: State,
    pub operation: Operation,
    pub hash: u64,
    pub key_len: u32,
    pub value_len: u32,
    /// Address of the current slot.
    pub address: u64,
    /// True if the current slot is the one that was remembered.
    pub remembered: bool,
    /// Table and index of the current slot, unless it was remembered.
    pub table: u32,
    pub slot: u64,
    /// Number of slots of other keys that the operation has passed in this table.
    pub passed: u32,
    /// The key's slot in the previous table, if that slot is frozen.
    pub frozen: Option<Frozen>,
    /// Bytes requested by the READ under way.
    pub asked: u32,
    /// The generation that the slot must have for the CAS to succeed.
    pub generation: u64,
    /// The phase of `Returns` in which the operation began, while it may hold buffers. The grace period of a
    /// sweep waits for it to end.
    pub phase: Option<Phase>,
    /// Number of free lists that were found empty: the buffer comes from a class larger by this many sizes.
    pub larger: u8,
    pub round_trips: u32,
    pub tries: u32,
}

impl Flight {
    pub(crate) const IDLE: Flight = Flight {
        state: State::Idle,
        operation: Operation::Get,
        hash: 0,
        key_len: 0,
        value_len: 0,
        address: 0,
        remembered: false,
        table: 0,
        slot: 0,
        passed: 0,
        frozen: None,
        asked: 0,
        generation: 0,
        phase: None,
        larger: 0,
        round_trips: 0,
        tries: 0,
    };

    /// Moves the operation to its key's home slot in a table.
    #[inline]
    pub(crate) fn go_home(&mut self, tables: &Tables, table: u32) {
        (self.table, self.passed, self.remembered) = (table, 0, false);
        self.slot = tables.home(table, self.hash);
        self.address = tables.address(table, self.slot);
    }

    /// Returns the slot's generation after the CAS. A new object makes an even generation odd, a DELETE
    /// makes an odd one even. An object that replaces another of its key leaves the generation unchanged.
    pub(crate) fn next_generation(&self) -> u64 {
        match self.operation {
            Operation::Delete => self.generation.wrapping_add(1),
            _ => self.generation | 1,
        }
    }

    /// Returns true if the slot held the key when it was read.
    pub(crate) fn overwrites(&self) -> bool {
        self.generation & 1 == 1
    }
}
